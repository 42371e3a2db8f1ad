import subprocess
import sys

import numpy as np
import pytest
import torch

import gradwire


def test_a_frame_has_the_header_and_the_documented_payload():
    # docs/wire-format.md: 32 bytes and the codec's parameters before the payload; onebit: 4 + 1024/8 bytes a block.
    frames = [gradwire.encode(np.ones(count, "f4"), "onebit") for count in (1024, 2048)]
    assert len(frames[1]) - len(frames[0]) == 4 + 128


@pytest.mark.parametrize("shape", [(), (0,), (7,), (33, 65)])
def test_none_returns_every_number(shape):
    values = np.random.default_rng(1).standard_normal(shape).astype("f4")
    assert np.array_equal(gradwire.decode(gradwire.encode(values, "none")), values.reshape(-1))


def test_torch_tensors_and_types():
    values = torch.arange(-8, 8, dtype=torch.bfloat16)
    decoded = gradwire.decode(gradwire.encode(values, "none"))
    assert decoded.dtype == np.float32 and np.array_equal(decoded, np.arange(-8, 8))
    half = gradwire.decode(gradwire.encode(values.half(), "f16"))
    assert half.dtype == np.float16 and np.array_equal(half, np.arange(-8, 8))


def test_an_array_that_is_not_contiguous_is_read_in_its_order():
    values = np.arange(12, dtype="f4").reshape(3, 4)
    assert np.array_equal(gradwire.decode(gradwire.encode(values.T, "none")), values.T.reshape(-1))


def test_random_numbers_follow_seed_step_and_tensor():
    values = np.random.default_rng(2).standard_normal(4096).astype("f4")
    method = "quant(bits=2,round=stochastic)"
    first = gradwire.encode(values, method, seed=3)
    assert first == gradwire.encode(values, method, seed=3)
    assert first != gradwire.encode(values, method, seed=4)
    assert first != gradwire.encode(values, method, seed=3, step=1)
    assert first != gradwire.encode(values, method, seed=3, tensor_id=1)


@pytest.mark.parametrize(("call", "code", "words"), [
    (lambda: gradwire.encode(np.ones(3, "f4"), "twobit"), "invalid_argument", "onebit"),
    (lambda: gradwire.encode(np.ones(3, "f8"), "none"), "invalid_argument", "32-bit"),
    (lambda: gradwire.encode(np.ones(3, "i4"), "none"), "invalid_argument", "floats"),
    (lambda: gradwire.decode(gradwire.encode(np.ones(3, "f4"), "none")[:-1]), "corrupt_payload", "size"),
    (lambda: gradwire.decode(b""), "corrupt_payload", "frame"),
])
def test_errors_have_a_code_and_say_what_to_do(call, code, words):
    with pytest.raises(gradwire.Error, match=words) as raised:
        call()
    assert raised.value.code == code


def test_every_method_is_listed():
    names = [each["name"] for each in gradwire.codecs()]
    assert names == sorted(names) and {"none", "f16", "bf16", "onebit", "quant", "topk"} <= set(names)
    quant = next(each for each in gradwire.codecs() if each["name"] == "quant")
    assert set(quant["keys"]) == {"bits", "block", "scale", "round"}


def test_works_without_torch():
    script = "import sys; sys.modules['torch'] = None; import gradwire; print(len(gradwire.codecs()))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) == len(gradwire.codecs())
