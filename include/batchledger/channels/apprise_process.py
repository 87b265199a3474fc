"""Delivers one message by Apprise, in a process of its own: it reads an order of JSON from its standard input.

Apprise's services read whatever their servers answer, for as long as these go on. No bound reaches into them, so this
process has bounds itself. It imports nothing of Airflow, and ends with code 0 only if every service has delivered.
"""

import json
import logging
import resource
import signal
import sys

from apprise import Apprise, NotifyFormat

from batchledger.bounds.process_limits import limit_process

NOT_DELIVERED = 3
MEMORY_BYTES = 2**30


def main() -> None:
    """Deliver. The alarm ends the process where it stands, also within a library; imports come before its clock."""
    order = json.load(sys.stdin)
    # Apprise logs URLs that it does not understand, with their secrets.
    logging.disable()
    services = Apprise()
    for url in order["urls"]:
        services.add(url)
    limit_process(resource.RLIMIT_AS, MEMORY_BYTES)
    signal.alarm(order["seconds"])
    message = {"body": order["text"], "title": order["title"], "notify_type": order["type"]}
    sys.exit(0 if services.notify(**message, body_format=NotifyFormat.TEXT) else NOT_DELIVERED)


if __name__ == "__main__":
    main()
