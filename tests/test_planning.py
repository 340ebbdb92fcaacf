import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtcli.config import TokenizerConfig, TransformerConfig, load_config
from mtcli.data import Corpus
from mtcli.errors import ConfigError
from mtcli.models import build_model
from mtcli.planning import (
    Gpu,
    Machine,
    Plan,
    Side,
    Survey,
    choose,
    estimate,
    lines,
    look_at_machine,
    make_plan,
    review,
    survey,
)
from mtcli.planning.ladder import RUNGS
from mtcli.planning.machine import _first_gpu
from mtcli.tokenizer import train_tokenizers
from processes import output_of

DEMO = Path(__file__).parent.parent / "data" / "demo"
TRAIN = ("data.train", ("a.en", "a.de"))
MACHINE = Machine(cores=2, memory=24 * 10**9, gflops=250.0)
GPU = replace(MACHINE, gpu=Gpu("a GPU", 24 * 10**9))
SIDE = Side(characters=61, words=12, probe_pieces=22, long_characters=121)
SURVEY = Survey(n_pairs=29_000, alphabet=95, source=SIDE, target=SIDE)
SINGLE_SETTINGS = [
    ("tokenizer.vocab_size", 32_000),
    ("tokenizer.is_shared", False),
    ("model.d_model", 2),
    ("model.d_model", 96),
    ("model.d_model", 194),
    ("model.d_model", 1024),
    ("model.n_heads", 1),
    ("model.n_heads", 5),
    ("model.n_heads", 48),
    ("model.d_feed_forward", 7),
    ("model.n_encoder_layers", 12),
    ("model.n_decoder_layers", 1),
    ("model.dropout", 0),
    ("model.norm", "post"),
    ("model.positions", "learned"),
    ("model.tied_embeddings", "none"),
    ("data.dev", ("b.en", "b.de")),
    ("data.dev_pairs", 7),
    ("data.max_length", 20),
    ("data.max_length", 1000),
    ("data.batch_tokens", 100),
    ("search.max_length", 50),
    ("search.max_length", 400),
    ("train.steps", 1),
    ("train.minutes", 0.1),
    ("train.minutes", 10_000),
    ("train.optimizer", "adamw"),
    ("train.accumulate", 4),
    ("train.device", "cpu"),
    ("train.validate_every", 1),
]

sides = st.builds(
    lambda words, word_length, pieces, longest: Side(
        characters=words * word_length,
        words=words,
        probe_pieces=words * min(pieces, word_length),
        long_characters=round(longest * words * word_length) + 1,
    ),
    words=st.floats(0.5, 5_000),
    word_length=st.floats(1, 20),
    pieces=st.floats(0, 20),
    longest=st.floats(1, 10),
)
surveys = st.builds(
    Survey,
    n_pairs=st.integers(1, 10**8),
    alphabet=st.integers(1, 20_000),
    source=sides,
    target=sides,
)
machines = st.builds(
    Machine,
    cores=st.integers(1, 256),
    memory=st.integers(10**8, 10**12),
    gflops=st.floats(0.1, 10**5),
    gpu=st.none() | st.just(Gpu("a GPU", 8 * 10**9)),
)
budgets = st.none() | st.floats(0.01, 10**5)


def planned(seen: Survey, machine: Machine, *fixed: tuple[str, object]) -> Plan:
    given_settings = dict([TRAIN, *fixed])
    choices = choose(seen, machine, given_settings)
    chosen = [(choice.key, choice.value) for choice in choices]
    config = load_config(None, [*chosen, *given_settings.items()])
    return Plan(choices, config, estimate(config, seen, machine), seen, machine)


def sizes(plan: Plan) -> tuple[int, ...]:
    model = plan.config.model
    layers = (model.n_encoder_layers, model.n_decoder_layers)
    return (plan.config.tokenizer.vocab_size, model.d_model, *layers, plan.estimate.n_parameters)


def is_at_most(small: Plan, large: Plan) -> bool:
    return all(a <= b for a, b in zip(sizes(small), sizes(large), strict=True))


@pytest.fixture(scope="module")
def demo():
    texts = [(DEMO / name).read_text(encoding="utf-8") for name in ("train.en", "train.de")]
    return Corpus(*[text.splitlines() for text in texts])


@pytest.mark.parametrize("setting", [None, *SINGLE_SETTINGS], ids=str)
@given(seen=surveys, machine=machines, minutes=budgets)
@settings(max_examples=20, deadline=None)
def test_every_plan_is_a_valid_configuration_that_keeps_what_was_set(
    seen, machine, minutes, setting
):
    fixed = dict([("train.minutes", minutes)] if minutes else [])
    fixed.update([setting] if setting else [])
    plan = planned(seen, machine, *fixed.items())
    assert not {choice.key for choice in plan.choices} & fixed.keys()
    written = plan.config.model_dump(mode="json")
    for key, value in fixed.items():
        section, _, name = key.partition(".")
        expected = list(value) if isinstance(value, tuple) else value
        assert written[section][name] == expected
    assert plan.estimate.seconds > 0
    assert plan.estimate.memory > 0
    assert plan.config.model.d_model // plan.config.model.n_heads >= 1


@given(surveys, machines, budgets)
@settings(max_examples=50, deadline=None)
def test_the_text_names_every_choice_with_its_value_and_reason(seen, machine, minutes):
    plan = planned(seen, machine, *([("train.minutes", minutes)] if minutes else []))
    told = lines(plan)
    for choice in plan.choices:
        assert any(
            line.split()[0] == choice.key and f"{choice.value}  {choice.reason}" in line
            for line in told
        )
    assert f"{plan.estimate.n_parameters:,} parameters" in "\n".join(told)
    assert "--set" in told[-1]


def test_the_text_of_ordinary_plans_fits_into_100_columns():
    for rung in RUNGS:
        for machine in (MACHINE, GPU):
            for fixed in ([], [("train.minutes", 30)], [("tokenizer.is_shared", False)]):
                plan = planned(replace(SURVEY, n_pairs=rung.from_pairs + 10), machine, *fixed)
                assert max(map(len, lines(plan))) <= 100


@given(surveys, machines, budgets, st.integers(1, 10**8))
@settings(max_examples=50, deadline=None)
def test_a_larger_corpus_never_gets_a_smaller_model(seen, machine, minutes, n_pairs):
    fixed = [("train.minutes", minutes)] if minutes else []
    small, large = sorted((seen.n_pairs, n_pairs))
    plans = [planned(replace(seen, n_pairs=n), machine, *fixed) for n in (small, large)]
    assert is_at_most(*plans)


@given(surveys, machines, st.floats(0.01, 10**5), st.floats(0.01, 10**5))
@settings(max_examples=50, deadline=None)
def test_a_larger_budget_never_gets_a_smaller_model(seen, machine, one, other):
    small, large = sorted((one, other))
    plans = [planned(seen, machine, ("train.minutes", minutes)) for minutes in (small, large)]
    assert is_at_most(*plans)


def test_a_budget_makes_models_small_and_a_longer_one_larger():
    """That the laws above are not kept by one size for all."""
    seen = replace(SURVEY, n_pairs=5_000_000)
    widths = [
        planned(seen, MACHINE, ("train.minutes", minutes)).config.model.d_model
        for minutes in (1, 10, 100, 10_000)
    ]
    assert widths == sorted(set(widths))


def test_sizes_follow_published_recipes():
    multi30k = planned(SURVEY, MACHINE)
    assert 2_000 <= multi30k.config.tokenizer.vocab_size <= 4_000
    assert 2e6 <= multi30k.estimate.n_parameters <= 5e6
    assert 0.2 <= multi30k.config.model.dropout <= 0.3
    wmt = planned(replace(SURVEY, n_pairs=4_500_000), GPU)
    model = wmt.config.model
    assert wmt.config.tokenizer.vocab_size == 32_000
    assert (model.d_model, model.n_heads, model.d_feed_forward) == (512, 8, 2048)
    assert (model.n_encoder_layers, model.n_decoder_layers, model.dropout) == (6, 6, 0.1)


@pytest.mark.parametrize("n_pairs", [rung.from_pairs + 1 for rung in RUNGS])
def test_without_a_budget_a_cpu_is_busy_for_no_more_than_about_two_hours(n_pairs):
    plan = planned(replace(SURVEY, n_pairs=n_pairs), MACHINE)
    assert plan.estimate.seconds < 1.1 * 2 * 3600


def test_only_the_number_of_steps_depends_on_the_measured_speed():
    seen, slow = replace(SURVEY, n_pairs=1_000_000), replace(MACHINE, gflops=20.0)
    one, other = [planned(seen, machine).config.model_dump() for machine in (MACHINE, slow)]
    assert one["train"].pop("steps") > other["train"].pop("steps")
    for plan in (one, other):
        del plan["train"]["warmup"], plan["train"]["validate_every"]  # shares of the steps
    assert one == other


@pytest.mark.parametrize(("width", "n_heads"), [(96, 3), (192, 6), (256, 8), (512, 8), (194, 2)])
def test_heads_and_feed_forward_follow_a_given_width(width, n_heads):
    model = planned(SURVEY, MACHINE, ("model.d_model", width)).config.model
    assert (model.d_model, model.n_heads, model.d_feed_forward) == (width, n_heads, 4 * width)


@pytest.mark.parametrize(
    "settings",
    [
        [("model.n_kv_heads", 4), ("model.d_model", 96)],
        [("model.positions", "rotary"), ("model.d_model", 66)],
        [("model.positions", "rotary"), ("model.d_model", 2 * 3 * 5 * 7)],
    ],
)
def test_heads_go_with_what_is_given(settings):
    planned(SURVEY, MACHINE, *settings)  # else the configuration would be refused


def test_the_width_follows_given_heads():
    model = planned(SURVEY, MACHINE, ("model.n_heads", 5)).config.model
    assert (model.d_model, model.n_heads) == (190, 5)


PARENT = ("train.start_from", "runs/parent")


def rates(*fixed) -> dict[str, float]:
    choices = planned(SURVEY, MACHINE, *fixed).choices
    return {choice.key: choice.value for choice in choices if choice.key.endswith("rate")}


def test_a_model_that_has_been_trained_already_gets_gentle_rates_and_is_told_so():
    usual = load_config(None, [TRAIN]).train
    plan = planned(SURVEY, MACHINE, PARENT)
    assert plan.config.train.learning_rate < usual.learning_rate
    assert plan.config.train.matrix_learning_rate < usual.matrix_learning_rate
    told = lines(plan)
    for key in ("train.learning_rate", "train.matrix_learning_rate"):
        [line] = [line for line in told if line.split()[0] == key]
        assert line.endswith("less than usual, to keep what the parent has learned")
    assert max(map(len, told)) <= 100
    assert rates() == {}


def test_rates_that_are_set_or_not_used_are_not_chosen():
    assert rates(PARENT, ("train.learning_rate", 7e-3)).keys() == {"train.matrix_learning_rate"}
    assert rates(PARENT, ("train.optimizer", "adamw")).keys() == {"train.learning_rate"}
    wide = [("model.d_model", 512), ("tokenizer.vocab_size", 32_000)]
    assert rates(PARENT, *wide)["train.learning_rate"] < rates(*wide)["train.learning_rate"]


def test_dev_files_leave_nothing_to_hold_out():
    def keys(*fixed):
        return {choice.key for choice in planned(SURVEY, MACHINE, *fixed).choices}

    assert "data.dev_pairs" in keys()
    assert "data.dev_pairs" not in keys(("data.dev", ("b.en", "b.de")))


def test_an_alphabet_of_thousands_gets_a_vocabulary_that_can_spell_it():
    plan = planned(replace(SURVEY, alphabet=6_000), MACHINE)
    assert plan.config.tokenizer.vocab_size > 12_000


def test_batches_that_do_not_fit_into_memory_are_cut_and_accumulated():
    seen = replace(SURVEY, n_pairs=5_000_000)
    wide = planned(seen, GPU).config
    narrow = planned(seen, replace(GPU, gpu=Gpu("small", 6 * 10**9)))
    assert narrow.config.data.batch_tokens < wide.data.batch_tokens
    assert narrow.estimate.memory < 6 * 10**9
    total = [c.data.batch_tokens * c.train.accumulate for c in (wide, narrow.config)]
    assert total[0] == total[1]


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        (("model.d_model", "wide"), "model.d_model: Input should be a valid integer"),
        (("model.d_model", 7), "model.d_model: Input should be a multiple of 2"),
        (("model.n_heads", -1), "model.n_heads: Input should be greater than 0"),
        (("train.minutes", "all"), "train.minutes: Input should be a valid number"),
        (("search.max_length", None), "search.max_length: Input should be a valid integer"),
        (("train.step", 5), "train.step: unknown key; did you mean train.steps?"),
    ],
)
def test_a_wrong_setting_is_told_as_without_a_plan(setting, says):
    with pytest.raises(ConfigError) as error:
        planned(SURVEY, MACHINE, setting)
    assert says in str(error.value)


@pytest.mark.parametrize("tied", ["all", "target", "none"])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("shape", [(1, 1, 8, 2, 12), (3, 2, 16, 4, 64), (2, 4, 6, 1, 5)])
def test_parameters_are_counted_exactly(tied, norm, positions, shape):
    n_encoder_layers, n_decoder_layers, d_model, n_heads, d_feed_forward = shape
    config = TransformerConfig(
        n_encoder_layers=n_encoder_layers,
        n_decoder_layers=n_decoder_layers,
        d_model=d_model,
        n_heads=n_heads,
        d_feed_forward=d_feed_forward,
        tied_embeddings=tied,
        norm=norm,
        positions=positions,
        max_positions=33,
    )
    target_size = 20 if tied == "all" else 31
    model = build_model(config, 20, target_size)
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    assert config.n_parameters(20, target_size) == n_parameters


def test_time_grows_with_steps_and_a_budget_is_kept():
    def expected(*fixed):
        return planned(SURVEY, MACHINE, ("train.validate_every", 500), *fixed).estimate

    one, ten = expected(("train.steps", 1_000)), expected(("train.steps", 10_000))
    assert ten.seconds == pytest.approx(10 * one.seconds)
    assert ten.epochs == pytest.approx(10 * one.epochs)
    assert expected(("train.minutes", 7)).seconds == 7 * 60


def test_validations_take_time_each_and_the_last_one_too():
    def seconds(interval):
        settings = ("train.steps", 1_000), ("train.validate_every", interval)
        return planned(SURVEY, MACHINE, *settings).estimate.seconds

    once, twice, often = (seconds(interval) for interval in (1_000, 500, 100))
    assert twice - once > 0
    assert often - once == pytest.approx(9 * (twice - once))
    assert seconds(999) == twice  # the end is validated, wherever it falls


def test_a_faster_machine_takes_less_time_and_more_cores_help():
    def seconds(machine):
        return planned(SURVEY, machine, ("train.steps", 1_000)).estimate.seconds

    assert seconds(replace(MACHINE, gflops=500.0)) == pytest.approx(seconds(MACHINE) / 2)
    four_cores = replace(MACHINE, cores=4, gflops=500.0)
    assert seconds(MACHINE) / 2 < seconds(four_cores) < seconds(MACHINE)


def test_to_guess_the_source_as_well_takes_longer():
    language_model = ("model.arch", "decoder_only"), ("model.source_attention", "causal")

    def speed(side):
        settings = (*language_model, ("model.loss_on", side))
        return planned(SURVEY, MACHINE, *settings).estimate.tokens_per_second

    assert speed("both") < speed("target")


def test_the_survey_is_near_what_real_tokenizers_do(demo):
    half = Corpus(demo.source[:5_000], demo.target[:5_000])
    seen = survey(half)
    for vocab_size in (1_000, 2_000, 4_000):
        options = TokenizerConfig(kind="bpe", vocab_size=vocab_size)
        tokenizer = train_tokenizers(half.source, half.target, options).source
        for guess, side in zip(seen.pieces(vocab_size), (half.source, half.target), strict=True):
            n_pieces = sum(len(ids) for ids in tokenizer.encode(side))
            assert guess == pytest.approx(n_pieces / len(half), rel=0.25)


def test_a_script_without_spaces_has_words_all_the_same():
    chinese = ["他们昨天在图书馆里看了一本很有意思的书。", "我不知道他为什么没有来参加会议。"] * 50
    seen = survey(Corpus(chinese, ["They read a very interesting book."] * 100))
    assert 5 < seen.source.words < seen.source.characters
    assert seen.source.pieces(100_000) >= 5


def test_lines_of_unequal_length_in_turn_do_not_mislead_the_survey():
    turns = ["word " * (1 if i % 20 == 0 else 21) for i in range(40_000)]
    seen = survey(Corpus(turns, turns))
    assert seen.source.words == pytest.approx(20, rel=0.05)


@pytest.mark.parametrize("n_pairs", [1, 2, 10])
def test_a_handful_of_pairs_can_be_planned_and_its_vocabulary_learned(demo, n_pairs):
    corpus = Corpus(demo.source[:n_pairs], demo.target[:n_pairs])
    plan = make_plan(corpus, [TRAIN], MACHINE)
    assert plan.survey.n_pairs == n_pairs
    train_tokenizers(corpus.source, corpus.target, plan.config.tokenizer)


def test_a_plan_is_the_same_each_time(demo):
    assert make_plan(demo, [TRAIN], MACHINE) == make_plan(demo, [TRAIN], MACHINE)


def test_a_section_given_as_a_whole_leaves_its_other_keys_to_the_plan(demo):
    plan = make_plan(demo, [TRAIN, ("model", {"d_model": 64})], MACHINE)
    assert plan.config.model.d_model == 64
    assert plan.config.model.d_feed_forward == 256


def test_a_section_given_later_replaces_what_was_said_of_it(demo):
    settings = [TRAIN, ("model.n_heads", 2), ("model", {"arch": "rnn", "d_model": 64})]
    plan = make_plan(demo, settings, MACHINE)
    assert plan.config.model.arch == "rnn"
    assert plan.config.model.d_model == 64


@pytest.mark.parametrize("arch", ["transformer", "decoder_only", "rnn"])
def test_every_architecture_can_be_planned(demo, arch):
    plan = make_plan(demo, [TRAIN, ("model.arch", arch)], MACHINE)
    assert plan.config.model.arch == arch
    assert {choice.key for choice in plan.choices} >= {"model.d_model", "tokenizer.vocab_size"}


def test_the_resolved_configuration_can_be_reviewed_and_leaves_nothing_to_choose(demo):
    plan = make_plan(demo, [TRAIN], MACHINE)
    again = review(demo, plan.config, MACHINE)
    assert again == replace(plan, choices=())
    assert "--set" not in "\n".join(lines(again))


def test_a_gpu_that_is_not_wanted_does_not_count(demo):
    assert make_plan(demo, [TRAIN], GPU).machine.gpu
    assert make_plan(demo, [TRAIN, ("train.device", "cpu")], GPU).machine.gpu is None


class Counted(list):
    """A list that knows how many of its items were asked for."""

    n_read = 0

    def __getitem__(self, index):
        found = super().__getitem__(index)
        self.n_read += len(found) if isinstance(index, slice) else 1
        return found

    def __iter__(self):
        for item in super().__iter__():
            self.n_read += 1
            yield item


def test_of_millions_of_pairs_some_are_surveyed(demo):
    many = Corpus(Counted(demo.source * 100), Counted(demo.target * 100))
    assert survey(many).n_pairs == 2_000_000
    assert 0 < many.source.n_read < 100_000
    assert 0 < many.target.n_read < 100_000


def test_this_machine_is_a_machine():
    machine = look_at_machine()
    assert machine.cores >= 1
    assert machine.memory > 10**8
    assert machine.gflops > 0.1


def test_the_answer_of_nvidia_smi_is_read_or_left_alone():
    found = _first_gpu("NVIDIA A100-SXM4-40GB, 40960\nNVIDIA A100-SXM4-40GB, 40960\n")
    assert found == Gpu("NVIDIA A100-SXM4-40GB", 40960 * 2**20)
    assert _first_gpu("No devices were found\n") is None
    assert _first_gpu("") is None


def test_planning_does_not_wait_for_torch():
    code = "import sys, mtcli.planning; assert 'torch' not in sys.modules"
    output_of([sys.executable, "-c", code])


def test_a_model_too_large_for_any_batch_is_told_so():
    plan = planned(SURVEY, MACHINE, ("model.d_model", 20_000), ("model.n_heads", 8))
    assert any("lower model.d_model, or the number of layers" in line for line in lines(plan))
