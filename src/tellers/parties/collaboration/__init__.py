"""Learning from each other: parties with few rows, some of which ask the others and learn from the answers.

Everything is computed in one room, in the clear, with the mechanisms, the prices and the ledgers of
confidential queries (`tellers.parties`), which compute the same labels without anybody seeing a vote.
"""
