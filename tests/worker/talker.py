"""A child for tests of the kit: does what it is told."""

from __future__ import annotations

import os
import signal
import sys
import time

from weftline.errors import InputError
from weftline.worker.child import Conversation, die_with, serve


def talk(conversation: Conversation) -> None:
    """One word, one deed."""
    while True:
        match conversation.receive(list[str]):
            case ["echo", text]:
                sys.stdout.write("what a library prints\n")
                conversation.send([text])
            case ["long", size]:
                conversation.send(["x" * int(size)])
            case ["input"]:
                raise InputError("is wrong", where="here")
            case ["other"]:
                raise ValueError("first\nsecond")
            case ["silent"]:
                raise ValueError
            case ["crash"]:
                os.kill(os.getpid(), signal.SIGKILL)
            case ["leave"]:
                sys.stderr.write("goodbye\n")
                sys.stderr.flush()
                os._exit(3)
            case ["sleep"]:
                time.sleep(600)
            case other:
                conversation.send(other)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        die_with(int(sys.argv[1]))
    sys.exit(serve(talk, in_short=lambda error: str(error).partition("\n")[0]))
