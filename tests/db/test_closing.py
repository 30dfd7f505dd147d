"""Connections are closed at the end of a process, whatever comes in between."""

import subprocess
import sys


def test_a_ctrl_c_at_the_very_end_keeps_no_connection_from_being_closed() -> None:
    script = (
        "import os, signal\nfrom vtjobs.db.closing import closed_at_exit\n"
        "class Engine:\n    def dispose(self):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n        print('closed')\n"
        "engines = [closed_at_exit(Engine()), closed_at_exit(Engine())]"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["closed", "closed"], "")
