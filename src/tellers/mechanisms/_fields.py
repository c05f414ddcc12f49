"""Parameters that several mechanisms have: the same words, bounds and units wherever they stand."""

from functools import partial

from .registry import parameter

noise_sigma = partial(
    parameter, "standard deviation of the noise on every count, in votes", above=0, in_votes=1
)
check_threshold = partial(parameter, "votes the noisy top count must reach", in_votes=1)
side_threshold = partial(
    parameter, "votes the noisy count of a label's larger side must reach", example=40.0, in_votes=1
)
check_sigma = partial(parameter, "standard deviation of the noise of that check", above=0, in_votes=1)
label_count = partial(parameter, "how many labels there are", of_votes=True)
vote_parts = partial(parameter, "parts of a vote that are counted", default=1, of_votes=True)
label_cap = partial(
    parameter, "at most so many labels of a ballot count; 0: all", default=0, least=0, example=3
)
label_share = partial(
    parameter,
    "the share of the teachers that a sum must exceed, one for all labels or one each; 0.5 where it is left "
    "out",
    default=0.5, form="numbers", above=0, below=1, example=0.5,
)  # fmt: skip
ballot_norm = partial(
    parameter, "which norm; l2 where it is left out", default="l2", choices=("l2", "l1"), example="l2"
)
silence_share = partial(
    parameter,
    "the share of queries that is expected to stay silent: public, it changes what queries are charged where "
    "the numbers of teachers and classes are known, and never what is released; silence is charged its check "
    "where it is left out",
    default=None, least=0, most=1, example=0.5,
)  # fmt: skip
# What new settings expect where nothing better is known. It is public, and fixed before any vote is cast: a
# table in "The joint price of a check and its answer" says what a wrong guess costs.
USUAL_SILENCE = 0.5
