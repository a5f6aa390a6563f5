"""What a confined candidate's process sees of the machine, and what stays of what it writes."""

import os

import pytest
from candidate_process import returning, starter

from kernelwright import errors

resident = starter()


def confined(resident, expression):
    remote, inputs = resident(
        "import os, socket, stat, tempfile\n" + returning(f"(x, str({expression}))"), namespaces=True
    )
    if any("namespaces" in what for what in remote.missing):
        pytest.skip("this system permits no user namespaces")
    return remote.run(inputs, 5, "running forward").constants["output[1]"].text.strip("'")


def test_confined_it_sees_no_other_process_and_no_network(resident):
    assert (
        confined(resident, "sorted(name for name in os.listdir('/proc') if name.isdigit())").replace('"', "")
        == "['1', '2']"
    )
    assert confined(resident, "[name for _, name in socket.if_nameindex()]").replace('"', "") == "['lo']"


def test_confined_what_it_writes_is_gone(resident):
    folders = "(os.path.expanduser('~'), '/tmp', tempfile.gettempdir())"
    assert (
        confined(resident, f"[open(os.path.join(folder, 'kernelwright-test'), 'w').write('x') for folder in {folders}]")
        == "[1, 1, 1]"
    )
    assert not os.path.exists(os.path.expanduser("~/kernelwright-test")) and not os.path.exists(
        "/tmp/kernelwright-test"
    )


def test_confined_it_can_write_nowhere_else(resident):
    with pytest.raises(errors.Error, match="Read-only file system"):
        confined(resident, "open('/usr/kernelwright-test', 'w')")


def test_confined_it_finds_no_disks(resident):
    paths = "[os.path.join(at, name) for at, _, names in os.walk('/dev') for name in names]"
    assert confined(resident, f"[path for path in {paths} if stat.S_ISBLK(os.lstat(path).st_mode)]") == "[]"
    assert confined(resident, "os.path.exists('/dev/null')") == "True"
