"""The numbers that the paper prints (Mühl and Boenisch 2022): labels, students, teachers by class."""

import math

RATIOS = (25, 50, 75)
SHARES = (25, 50, 75, 100)  # of the minority class, table 6
FACTORS = (2, 3, 4)  # the higher budget, in units of the lower one: log 4, log 8, log 16 over log 2

# (ratio of the higher budget in percent, factor) -> labels by upsampling, vanishing, weighting.
Cells = dict[tuple[int, int], tuple[float, ...]]

LABELS: dict[str, Cells] = {
    "mnist": {
        (25, 2): (158, 25, 158), (50, 2): (237, 67, 239), (75, 2): (326, 157, 326),
        (25, 3): (231, 0, 229), (50, 3): (414, 84, 414), (75, 3): (636, 285, 638),
        (25, 4): (308, 0, 308), (50, 4): (623, 115, 623), (75, 4): (1038, 477, 1041),
    },
    "adult": {
        (25, 2): (140, 16, 139), (50, 2): (202, 57, 203), (75, 2): (272, 133, 273),
        (25, 3): (198, 10, 198), (50, 3): (346, 75, 349), (75, 3): (541, 236, 543),
        (25, 4): (264, 8, 259), (50, 4): (530, 95, 530), (75, 4): (868, 400, 872),
    },
}  # fmt: skip
STUDENTS: dict[str, Cells] = {
    "mnist": {
        (25, 2): (88.68, 60.18, 88.21), (50, 2): (90.44, 78.83, 90.78), (75, 2): (91.94, 88.58, 91.70),
        (25, 3): (90.56, 0, 90.40), (50, 3): (92.44, 82.42, 92.34), (75, 3): (93.30, 90.84, 93.39),
        (25, 4): (91.57, 0, 91.39), (50, 4): (93.56, 85.85, 93.27), (75, 4): (94.31, 92.78, 94.28),
    },
    "adult": {
        (25, 2): (81.02, 76.17, 80.87), (50, 2): (81.76, 78.62, 81.76), (75, 2): (82.16, 80.70, 82.26),
        (25, 3): (81.79, 75.73, 81.67), (50, 3): (82.52, 79.32, 82.60), (75, 3): (82.87, 82.09, 82.89),
        (25, 4): (82.30, 75.31, 82.25), (50, 4): (82.82, 79.97, 82.84), (75, 4): (83.07, 82.72, 83.04),
    },
}  # fmt: skip

# Baselines without personalisation: everybody has the lowest, the highest or the average budget.
MINIMUM = {"mnist": (99, 84.51), "adult": (88, 79.85)}
MAXIMUM = {
    "mnist": {2: (426, 92.40), 3: (914, 94.01), 4: (1540, 94.76)},
    "adult": {2: (354, 82.52), 3: (763, 83.02), 4: (1288, 83.23)},
}
AVERAGE = {
    "mnist": {
        (25, 2): (184, 89.10), (50, 2): (269, 91.17), (75, 2): (349, 91.81),
        (25, 3): (349, 91.81), (50, 3): (563, 93.06), (75, 3): (748, 93.71),
        (25, 4): (626, 93.53), (50, 4): (1009, 94.09), (75, 4): (1303, 94.60),
    },
    "adult": {
        (25, 2): (158, 81.18), (50, 2): (225, 82.00), (75, 2): (291, 82.36),
        (25, 3): (291, 82.36), (50, 3): (474, 82.81), (75, 3): (628, 83.01),
        (25, 4): (528, 82.84), (50, 4): (843, 83.10), (75, 4): (1090, 83.19),
    },
}  # fmt: skip

# Tables 6, 7 and 10: the higher budget to a share of Adult's minority class, upsampling.
# (share in percent, factor) -> labels, student accuracy, voting accuracy, teachers' precision and recall.
BY_CLASS: Cells = {
    (25, 2): (90, 81.26, 86.68, 65.92, 56.05), (50, 2): (95, 81.41, 86.61, 63.12, 61.70),
    (75, 2): (101, 81.35, 86.19, 60.85, 66.24), (100, 2): (109, 80.57, 85.64, 58.95, 69.68),
    (25, 3): (93, 81.51, 86.60, 63.14, 61.73), (50, 3): (108, 80.72, 85.64, 58.94, 69.84),
    (75, 3): (132, 78.60, 84.12, 55.90, 75.46), (100, 3): (162, 77.78, 82.57, 53.53, 79.44),
    (25, 4): (96, 81.39, 86.25, 60.81, 66.12), (50, 4): (129, 78.74, 84.12, 55.84, 75.48),
    (75, 4): (172, 77.36, 81.82, 52.53, 81.01), (100, 4): (225, 76.24, 79.52, 49.94, 84.79),
}  # fmt: skip
BY_CLASS_AVERAGE: Cells = {
    (25, 2): (106, 80.34), (50, 2): (123, 80.71), (75, 2): (140, 80.91), (100, 2): (157, 81.22),
    (25, 3): (140, 80.91), (50, 3): (193, 81.80), (75, 3): (241, 82.13), (100, 3): (289, 82.36),
    (25, 4): (209, 81.87), (50, 4): (320, 82.48), (75, 4): (428, 82.65), (100, 4): (524, 82.91),
}  # fmt: skip
PLAIN_TEACHERS = (86.18, 69.41, 48.82)  # voting accuracy, precision, recall without personalisation

TABLES = {"mnist": ("table 4", "table 8"), "adult": ("table 5", "table 9")}
MINORITY = 0.2478  # the minority's share of Adult's rows without missing values


def average_factor(share: float, factor: int) -> float:
    """Return the paper's average budget in units of the lowest: the logarithm of the mean of 2 and 8, say.

    So log 4 for 75 % and log 8 for 25 % have the same average, as section 5.2 says.
    """
    return round(math.log2((1 - share) * 2 + share * 2**factor), 6)
