"""What all tests share: Ctrl-C means the same however they were started."""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)  # `nohup` and `&` have it ignored, here and in every child
