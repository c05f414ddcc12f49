"""Teachers that never show their votes: askers, answerers and a guardian, each its own process.

The protocol is written as functions from a state and a message to a state and what follows (`guardian`,
`answerer`), so that every round can be tried without a socket. `wire` carries the messages; `link` speaks to
the engine that computes on shares, so that nobody shows inputs, models or votes to anybody.
"""
