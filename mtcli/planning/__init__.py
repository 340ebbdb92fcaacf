"""Two files are enough: what is not set is chosen, with a reason. Nothing here needs torch."""

from mtcli.planning.choices import Choice, choose
from mtcli.planning.estimate import Estimate, estimate
from mtcli.planning.machine import Gpu, Machine, look_at_machine
from mtcli.planning.plan import Plan, lines, make_plan, review
from mtcli.planning.resolution import Wish, goes_on, plan_of, resolve
from mtcli.planning.survey import Side, Survey, survey

__all__ = [
    "Choice",
    "Estimate",
    "Gpu",
    "Machine",
    "Plan",
    "Side",
    "Survey",
    "Wish",
    "choose",
    "estimate",
    "goes_on",
    "lines",
    "look_at_machine",
    "make_plan",
    "plan_of",
    "resolve",
    "review",
    "survey",
]
