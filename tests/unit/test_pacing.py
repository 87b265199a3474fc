"""The size of a batch follows a target duration: whatever a batch costs, with noise, hiccups and changes of speed."""

import math
import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchledger.planning.batch_size import FEWEST_RECORDS, PACES_CONSIDERED, Cost, Pace, choose_size, fit_cost

# Close to what was measured: 10,000 records in 2.5 s, 100,000 in 4.0 s.
MEASURED = Cost(2.3, 17e-6)
MANY = 10**12
NOISE = 0.1
FEW_EXAMPLES = settings(max_examples=40, deadline=None)


@dataclass
class Simulation:
    """A pipeline whose batches cost what ``cost`` says, give or take the noise. The newest batch comes first."""

    target_seconds: float
    cost: Cost = MEASURED
    max_records: int = MANY
    min_records: int = 1
    noise: random.Random | None = None
    paces: list[Pace] = field(default_factory=list)

    def choose(self) -> int:
        """The size of the next batch."""
        newest = self.paces[:PACES_CONSIDERED]
        return choose_size(newest, self.target_seconds, self.min_records, self.max_records).records

    def run(self, lag: int = MANY, hiccup_seconds: float = 0.0) -> float:
        """Take one batch of what is there; return its expected duration, as a share of the target."""
        records = min(self.choose(), lag)
        expected = self.cost.seconds_for(records)
        noise = self.noise.uniform(1 - NOISE, 1 + NOISE) if self.noise else 1.0
        self.paces.insert(0, Pace(records, expected * noise + hiccup_seconds))
        return expected / self.target_seconds

    def drain(self, batches: int) -> list[float]:
        """Take batches out of a large backlog; return the share of the target of each."""
        return [self.run() for _ in range(batches)]

    @property
    def doublings(self) -> int:
        """How many batches it takes at least to come from the first size to the right one."""
        return math.ceil(math.log2(self.cost.records_within(self.target_seconds) / FEWEST_RECORDS))


@st.composite
def simulations(draw: st.DrawFn, times_fixed: float = 3.0, times_fewest: float = 1.25) -> Simulation:
    """Targets well above the fixed time of a batch, that are reached with more than the fewest records."""
    fixed_seconds = 10 ** draw(st.floats(-1, 1.3))
    target_seconds = fixed_seconds * times_fixed * 10 ** draw(st.floats(0, 1.5))
    records = FEWEST_RECORDS * times_fewest * 10 ** draw(st.floats(0, 3))
    cost = Cost(fixed_seconds, (target_seconds - fixed_seconds) / records)
    return Simulation(target_seconds, cost, noise=draw(st.randoms(use_true_random=False)))


def near(share: float) -> bool:
    return abs(share - 1) <= 0.25


@given(simulations())
@FEW_EXAMPLES
def test_duration_comes_within_a_quarter_of_the_target_in_few_batches_and_stays(simulation: Simulation) -> None:
    simulation.drain(simulation.doublings + 4)
    assert all(near(share) for share in simulation.drain(12))


@given(simulations())
@FEW_EXAMPLES
def test_growing_batches_do_not_overshoot(simulation: Simulation) -> None:
    assert all(share <= 1.25 for share in simulation.drain(25))


@given(simulations(times_fixed=12.0, times_fewest=6.0), st.sampled_from([0.25, 4.0]))
@FEW_EXAMPLES
def test_six_batches_after_everything_has_become_four_times_slower_or_faster_the_target_is_held(
    simulation: Simulation, factor: float
) -> None:
    simulation.drain(simulation.doublings + 8)
    cost = simulation.cost
    simulation.cost = Cost(cost.fixed_seconds * factor, cost.seconds_per_record * factor)
    simulation.drain(6)
    assert all(near(share) for share in simulation.drain(8))


PACES = st.lists(st.builds(Pace, st.integers(1, 2**63 - 1), st.floats(1e-6, 1e9)), max_size=PACES_CONSIDERED)


@given(PACES, st.floats(1, 1e6), st.integers(1, MANY), st.integers(0, MANY))
@settings(deadline=None)
def test_whatever_was_measured_the_size_is_within_the_limits_and_a_step_from_what_was_tried(
    paces: list[Pace], target_seconds: float, min_records: int, more: int
) -> None:
    size = choose_size(paces, target_seconds, min_records, min_records + more)
    assert min_records <= size.records <= min_records + more
    highest = max([FEWEST_RECORDS, *(2 * pace.offsets for pace in paces)])
    lowest = max(FEWEST_RECORDS, paces[0].offsets // 2) if paces else FEWEST_RECORDS
    assert min(lowest, min_records + more) <= size.records <= max(highest, min_records)
    assert choose_size(paces, target_seconds, min_records, min_records + more) == size


@pytest.mark.parametrize(
    ("min_records", "max_records", "first"),
    [(1, 1_000_000, FEWEST_RECORDS), (1, 500, 500), (50_000, 1_000_000, 50_000)],
)
def test_first_batch_is_small_because_nobody_knows_what_a_record_costs(
    min_records: int, max_records: int, first: int
) -> None:
    assert choose_size([], 60.0, min_records, max_records).records == first


def test_example_of_the_documentation() -> None:
    paces = [Pace(100_000, 4.0), Pace(10_000, 2.5)]
    cost = fit_cost(paces)
    assert (round(cost.fixed_seconds, 1), round(cost.seconds_per_record * 1e6, 1)) == (2.3, 16.7)
    assert round(cost.records_within(30.0), -4) == 1_660_000
    assert choose_size(paces, 30.0, 1, 1_000_000).records == 200_000


def test_fixed_time_of_small_batches_is_not_taken_for_the_price_of_their_records() -> None:
    """2.5 s for 10,000 records would be 250 s for a million; the two batches together say 19 s."""
    paces = [Pace(400_000, 9.1), Pace(10_000, 2.47)]
    assert choose_size(paces, 10.0, 1, MANY).records > 440_000


def settled(**changes: float) -> Simulation:
    """A pipeline that has found its size."""
    simulation = replace(Simulation(30.0), **changes)  # type: ignore[arg-type]
    simulation.drain(simulation.doublings + 4)
    return simulation


def test_one_batch_that_waited_for_an_hour_changes_nothing() -> None:
    simulation = settled()
    before = simulation.choose()
    simulation.run(hiccup_seconds=3600)
    assert simulation.choose() == before
    assert all(near(share) for share in simulation.drain(PACES_CONSIDERED))


def test_batches_that_are_small_because_little_arrives_do_not_take_the_size_away() -> None:
    simulation = settled()
    before = simulation.choose()
    for arrived in (17, 4_000, 250, 1, 900, 3_000):
        simulation.run(lag=arrived)
    assert 0.8 * before <= simulation.choose() <= 1.25 * before


def test_backlog_after_a_long_quiet_time_is_taken_in_growing_batches() -> None:
    simulation = settled()
    for arrived in range(1, PACES_CONSIDERED + 1):
        simulation.run(lag=100 * arrived)
    shares = simulation.drain(simulation.doublings + 4)
    assert simulation.paces[len(shares) - 1].offsets == FEWEST_RECORDS
    assert max(shares) <= 1.25
    assert near(shares[-1])


def test_slow_day_on_which_no_size_holds_the_target_does_not_shrink_batches_to_fixed_work() -> None:
    """40 s of fixed time under a target of 30 s: batches of a few records would drain nothing."""
    simulation = settled()
    simulation.cost = replace(MEASURED, fixed_seconds=40.0)
    simulation.drain(60)
    on_records = [pace.seconds - 40.0 for pace in simulation.paces[:60]]
    assert min(on_records) > 10.0
    assert max(on_records) < 50.0


@pytest.mark.parametrize("target_seconds", [1.9, 2.1, 2.3, 2.4])
def test_slow_start_on_a_slow_day_does_not_shrink_batches_to_nothing(target_seconds: float) -> None:
    """The first batch warms everything up, and the target is about the fixed time: no size would hold it."""
    simulation = Simulation(target_seconds)
    simulation.run(hiccup_seconds=60)
    simulation.drain(60)
    assert {pace.offsets for pace in simulation.paces} >= {FEWEST_RECORDS}
    assert min(pace.offsets for pace in simulation.paces) == FEWEST_RECORDS


SLOW, FAST = Pace(400_000, 40.0), Pace(1_000, 2.3)


FOUR_HUNDRED = "recent batches took about 0.0 s and 100.0 s a million records"
BOTH = "recent batches took about 2.2 s and 94.5 s a million records"
MORE = "; no batch is more than twice the largest of them, or 10,000"
LESS = "; no batch is less than half of the one before it, or 10,000"


@pytest.mark.parametrize(
    ("said", "paces", "target_seconds", "min_records", "max_records"),
    [
        ("no batch has been timed yet, so the first one is small", [], 60.0, 1, MANY),
        (FOUR_HUNDRED, [SLOW], 40.0, 1, MANY),
        (f"{FOUR_HUNDRED}{MORE}", [SLOW], 600.0, 1, MANY),
        (f"{FOUR_HUNDRED}{LESS}", [SLOW], 4.0, 1, MANY),
        (f"{FOUR_HUNDRED}; limits.max_records is 5,000", [SLOW], 40.0, 1, 5_000),
        (f"{FOUR_HUNDRED}; limits.min_records is 500,000", [SLOW], 40.0, 500_000, MANY),
        (f"{BOTH}, so 4.4 s are aimed at, twice the fixed time{LESS}", [SLOW, FAST, FAST], 3.0, 1, MANY),
    ],
)
def test_reason_says_what_decided(
    said: str, paces: list[Pace], target_seconds: float, min_records: int, max_records: int
) -> None:
    assert choose_size(paces, target_seconds, min_records, max_records).reason == said


def test_fixed_time_below_a_second_is_found() -> None:
    cost = fit_cost([Pace(1_000_000, 2.5), Pace(10_000, 0.52)])
    assert (round(cost.fixed_seconds, 2), round(cost.seconds_per_record * 1e6)) == (0.5, 2)


@pytest.mark.parametrize(
    ("paces", "fixed_seconds"),
    [
        ([Pace(10_000, 3.0), Pace(10_000, 40.0), Pace(400_000, 40.0), Pace(400_000, 2.5)], 2.05),
        ([Pace(20_000, 2.0), Pace(20_000, 1.5), Pace(100_000, 1.0), Pace(10_000, 1.5)], 1.0),
    ],
    ids=["batches that do not follow each other", "one exactly twice as large"],
)
def test_any_two_batches_of_different_sizes_tell_the_fixed_time(paces: list[Pace], fixed_seconds: float) -> None:
    assert round(fit_cost(paces).fixed_seconds, 2) == fixed_seconds
