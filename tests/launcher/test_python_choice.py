"""Which Python the launcher takes, and what it installs where."""

from pathlib import Path

from launcher.machine import PYTHON, Machine

NO_TORCH = PYTHON.replace("${TORCH_HERE-ok 2.13.0+cpu}", "none")


def python_in(folder: Path, script: str = PYTHON) -> Path:
    (folder / "bin").mkdir(parents=True)
    path = folder / "bin" / "python"
    path.write_text(script)
    path.chmod(0o755)
    return path


def chosen(output: str) -> str:
    return output.split("python=")[1].split(" path=")[0]


def test_kw_python_wins(machine: Machine, tmp_path: Path) -> None:
    named, active = python_in(tmp_path / "named"), python_in(tmp_path / "active")
    run = machine.kw(KW_PYTHON=str(named), VIRTUAL_ENV=str(active.parent.parent))
    assert chosen(run.stdout) == str(named)


def test_an_active_environment_with_torch_comes_before_the_path(machine: Machine, tmp_path: Path) -> None:
    active = python_in(tmp_path / "active")
    assert chosen(machine.kw(VIRTUAL_ENV=str(tmp_path / "active")).stdout) == str(active)


def test_an_active_environment_without_torch_is_passed_over(machine: Machine, tmp_path: Path) -> None:
    python_in(tmp_path / "active", NO_TORCH)
    assert chosen(machine.kw(CONDA_PREFIX=str(tmp_path / "active")).stdout) == str(machine.tools / "python3")


def test_another_environment_is_chosen_anew_and_the_program_not_rebuilt_from_scratch(
    machine: Machine, tmp_path: Path
) -> None:
    machine.kw()
    active = python_in(tmp_path / "active")
    assert chosen(machine.kw(VIRTUAL_ENV=str(tmp_path / "active")).stdout) == str(active)
    assert len(machine.calls("cmake -S")) == 1


def test_kw_python_without_torch_is_refused(machine: Machine, tmp_path: Path) -> None:
    named = python_in(tmp_path / "named", NO_TORCH)
    run = machine.kw(KW_PYTHON=str(named))
    assert run.returncode == 3
    assert "has no PyTorch 2.8 or later (it has none)" in run.stderr
    assert "pip install" in run.stderr


def test_kw_python_with_an_old_torch_names_its_version(machine: Machine) -> None:
    run = machine.kw(KW_PYTHON="python3", TORCH_HERE="old 2.3.1")
    assert run.returncode == 3
    assert "it has 2.3.1" in run.stderr


def test_kw_python_that_does_not_exist_is_refused(machine: Machine) -> None:
    run = machine.kw(KW_PYTHON="/nowhere/python")
    assert run.returncode == 3
    assert "KW_PYTHON=/nowhere/python is not a program" in run.stderr


def test_what_the_users_python_lacks_goes_beside_it(machine: Machine) -> None:
    run = machine.kw(LACKS="numpy triton")
    assert f"path={machine.checkout}/python:{machine.checkout}/.kw/beside" in run.stdout
    (install,) = machine.calls("python -m pip install")
    assert f"--target {machine.checkout}/.kw/beside" in install
    assert "triton==" in install and "numpy==" in install and "torch" not in install


def test_without_torch_anywhere_the_cpu_build_goes_into_an_own_environment(machine: Machine) -> None:
    run = machine.kw(TORCH_HERE="none")
    assert chosen(run.stdout) == f"{machine.checkout}/.kw/venv/bin/python"
    torch = [call for call in machine.calls("python -m pip install") if "torch==" in call]
    assert len(torch) == 1 and torch[0].endswith("+cpu") and "--index-url" not in torch[0]


def test_where_the_indexes_lack_the_cpu_build_pytorchs_own_is_asked(machine: Machine) -> None:
    assert machine.kw(TORCH_HERE="none", NO_CPU_WHEEL="1").returncode == 0
    torch = [call for call in machine.calls("python -m pip install") if "torch==" in call]
    assert len(torch) == 2 and all(call.endswith("+cpu") for call in torch)
    assert "--index-url https://download.pytorch.org/whl/cpu" in torch[1]


def test_a_cuda_build_on_a_machine_without_a_driver_is_refused(machine: Machine) -> None:
    run = machine.kw(TORCH_HERE="none", CUDA_INSTALLED="1")
    assert run.returncode == 3
    assert "CUDA build" in run.stderr


def test_with_a_driver_the_cuda_build_is_installed(machine: Machine) -> None:
    machine.add_tool("nvidia-smi", "#!/bin/bash\necho 'CUDA Version: 13.0'\n")
    assert machine.kw(TORCH_HERE="none").returncode == 0
    (torch,) = [call for call in machine.calls("python -m pip install") if "torch==" in call]
    assert not torch.endswith("+cpu") and "--index-url" not in torch


def test_an_older_driver_gets_the_build_for_its_cuda(machine: Machine) -> None:
    machine.add_tool("nvidia-smi", "#!/bin/bash\necho 'CUDA Version: 12.8'\n")
    assert machine.kw(TORCH_HERE="none").returncode == 0
    (torch,) = [call for call in machine.calls("python -m pip install") if "torch==" in call]
    assert "--index-url https://download.pytorch.org/whl/cu126" in torch


def test_an_own_environment_that_was_not_finished_is_made_again(machine: Machine) -> None:
    assert machine.kw(TORCH_HERE="none", PIP_SAYS="killed").returncode == 3
    assert machine.kw(TORCH_HERE="none").returncode == 0
    assert len(list(machine.calls("python -m venv"))) == 2
    machine.forget_calls()
    (machine.checkout / ".kw" / "ready").unlink()
    assert machine.kw(TORCH_HERE="none").returncode == 0
    assert machine.calls("python -m venv") == []
