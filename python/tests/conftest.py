"""Where the test vectors are, and what a machine lacks, said in the summary."""

import os
import pathlib

import pytest

DATA = pathlib.Path(os.environ.get("SAMEDRAW_TEST_DATA", pathlib.Path(__file__).parents[2] / "tests" / "data"))


def pytest_report_header():
    try:
        import torch

        cuda = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU: tests of CUDA are SKIPPED"
        return f"torch {torch.__version__}, {cuda}"
    except ImportError:
        return "torch is not installed: tests of torch, of the compat functions and of CUDA are SKIPPED"


@pytest.fixture(scope="session")
def vectors():
    """The step files, sorted."""
    files = sorted(DATA.glob("*.safetensors"))
    assert len(files) >= 44, f"{len(files)} vectors in {DATA}"
    return files
