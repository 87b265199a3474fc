"""A Kafka client never ends in a thread of its own, whenever garbage is collected: librdkafka would abort then."""

import gc
import subprocess
import sys
import weakref

from batchledger.source.kafka import requests
from batchledger.source.kafka.requests import open_admin

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}

# The answer arrives in a thread of librdkafka, and garbage is collected there while the client is part of a cycle.
PROGRAM = """
import gc, threading
from confluent_kafka.admin import AdminClient
from batchledger.source.kafka.requests import open_admin

collected = threading.Event()

def ask():
    admin = {make}({{"bootstrap.servers": "127.0.0.1:1", "log_level": 0}})
    cycle = [admin]
    cycle.append(cycle)
    answer = admin.describe_cluster(request_timeout=1)
    answer.add_done_callback(lambda _: (gc.collect(), collected.set()))

gc.disable()
ask()
assert collected.wait(60)
open_admin({{"bootstrap.servers": "127.0.0.1:1", "log_level": 0}})
"""


def run(make: str) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(make=make)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_client_whose_garbage_is_collected_by_its_own_thread_ends_later() -> None:
    done = run("open_admin")
    assert (done.returncode, done.stderr) == (0, "")


def test_negative_control_an_ordinary_client_aborts_the_process() -> None:
    assert "librdkafka owned thread" in run("AdminClient").stderr


def test_client_that_ends_in_the_thread_that_made_it_is_not_kept() -> None:
    client = weakref.ref(open_admin(NOWHERE))
    gc.collect()
    assert client() is None
    assert requests._left_behind == []
