"""Evaluations with known scores, for the tests of the reports."""

from dataclasses import replace

from mtcli.data.formats.base import Languages
from mtcli.evaluation.analysis.analyze import analyze
from mtcli.evaluation.results import (
    Comparison,
    Decoding,
    Difference,
    Evaluation,
    Score,
    SystemResult,
    TestSet,
)

# Text that pages must show literally: markup, scripts, control characters, bidirectional text.
HOSTILE = [
    "<script>alert('x')</script><img src=http://example.org/x.png onerror=alert(1)>",
    '</script><script>window.hacked = true</script><!-- "quoted" \' ',
    "\x00\x07\x1b[31mcontrol\x7f\x85\u2028separator\u2029\ud800surrogate",
    "\u202eright to left \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u202d\u2066",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 emoji \U0001f3f4\u200d\u2620\ufe0f e\u0301\u0301",
    "x" * 100_000,
    "{{ 7 * 7 }} {% raw %} ${1} &amp; \\u003c",
    "",
]


def make_score(name: str, value: float) -> Score:
    return Score(name, value, signature=f"signature of {name}", margin=1.5)


def make_system(name: str, hypotheses: list[str], value: float) -> SystemResult:
    scores = {"bleu": make_score("BLEU", value), "chrf": make_score("chrF2", value + 20)}
    decoding = Decoding("ctranslate2", 5, len(hypotheses), 2.0, 3.0, 4_000_000, 9_000_000)
    return SystemResult(name, tuple(hypotheses), scores, decoding)


def make_evaluation(n: int = 60, n_systems: int = 2) -> Evaluation:
    """Return an evaluation in which line i of the second system has i % 7 wrong words."""
    source = [f"source sentence number {i} with words {'and more ' * (i % 5)}" for i in range(n)]
    reference = [f"Satz {i} eins zwei drei vier fünf sechs sieben" for i in range(n)]
    outputs = [[*reference], [_damage(line, i % 7) for i, line in enumerate(reference)]]
    names = ["runs/first", "runs/second"]
    systems = tuple(
        make_system(name, lines, 40.0 - 10 * i)
        for i, (name, lines) in enumerate(zip(names, outputs, strict=True))
    )
    comparison = Comparison(
        "runs/first",
        "bootstrap",
        1000,
        12345,
        {"bleu": "s", "chrf": "s"},
        (
            Difference("runs/second", "bleu", -10.0, 0.001),
            Difference("runs/second", "chrf", -10.0, 0.2),
        ),
    )
    return Evaluation(
        TestSet("test.en", tuple(source), (tuple(reference),), None, Languages("en", "de")),
        systems[:n_systems],
        comparison if n_systems > 1 else None,
    )


def with_analysis(evaluation: Evaluation, finding: str, lines: set[int]) -> Evaluation:
    """Return the evaluation with an analysis in which `lines` of the last system have a finding."""
    analysis = analyze(evaluation.test_set, evaluation.systems)
    *others, last = (
        replace(system, sentences=tuple(replace(s, findings=()) for s in system.sentences))
        for system in analysis.systems
    )
    sentences = tuple(
        replace(sentence, findings=(finding,) if i in lines else ())
        for i, sentence in enumerate(last.sentences)
    )
    systems = (*others, replace(last, sentences=sentences))
    return replace(evaluation, analysis=replace(analysis, systems=systems))


def make_hostile_evaluation() -> Evaluation:
    """Return an evaluation with hostile text in every text field."""
    n = len(HOSTILE)
    rotated = [HOSTILE[i:] + HOSTILE[:i] for i in range(4)]
    systems = tuple(
        make_system(f"{HOSTILE[i]}{HOSTILE[2]}{'long name ' * 40}", rotated[i + 2], 1.0)
        for i in range(2)
    )
    differences = tuple(
        Difference(systems[1].name, metric, 0.0, 1.0) for metric in systems[0].scores
    )
    evaluation = Evaluation(
        TestSet(HOSTILE[0] + "y" * 5000, tuple(rotated[0]), (tuple(rotated[1]),) * 2),
        systems,
        Comparison(systems[0].name, "bootstrap", n, 1, {}, differences),
        notices=tuple(HOSTILE[:5]),
    )
    return with_analysis(evaluation, "copied", {1})


def _damage(line: str, n: int) -> str:
    words = line.split()
    return " ".join([*words[: len(words) - n], *("falsch" for _ in range(n))])
