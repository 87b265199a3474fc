"""A long campaign: ``python -m tests.fuzzing --minutes 60``. Ends with 1 if there is a finding."""
# ruff: noqa: T201 -- It reports to people.

import argparse
import sys
import time

from tests.fuzzing.campaign import Campaign
from tests.fuzzing.subjects import make_subjects

STEP = 2_000


def main() -> None:
    """Look for so long, print each finding, and then what was decoded."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=2)
    options = parser.parse_args()
    campaign, until = Campaign(make_subjects(), options.seed), time.monotonic() + 60 * options.minutes
    findings = start = 0
    while time.monotonic() < until:
        for finding in campaign.look(range(start, start + STEP)):
            findings += 1
            record = {name: (len(part), part[:300]) for name, part in finding.record.items() if part is not None}
            print(f"{finding.number} {finding.subject}: {finding.how}: {record}", flush=True)
        start += STEP
    print("   rows  set aside  most ms")
    for subject, (rows, aside, micros) in zip(campaign.subjects, campaign.counts.tolist(), strict=True):
        print(f"{rows:7} {aside:10} {micros / 1_000:8.1f}  {subject.name}")
    rows, aside, _ = campaign.counts.sum(0).tolist()
    print(f"seed {options.seed}: {start:,} values, {rows:,} rows, {aside:,} set aside, {findings} findings")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
