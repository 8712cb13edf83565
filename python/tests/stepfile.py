"""Step files and result documents, read with numpy alone, and a step file's run through the package.

Arrays are made by ``make``, a function of a numpy array; bfloat16 comes as uint16 with ``bf16=True``.
"""

import json
import struct

import numpy as np

import samedraw

TYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "I32": np.int32}
STATUS = {"nan_logits": 1, "inf_logits": 2, "empty_row": 4, "nan_draft": 8, "bad_index": 16}
STRIDE = {"strided": 10_000_019, "sequential": 1}


def read(path):
    """The tensors by name, the names of their types, and the step."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    step = json.loads(header.pop("__metadata__")["step"])
    tensors, types = {}, {}
    for name, entry in header.items():
        start, end = (8 + length + at for at in entry["data_offsets"])
        array = np.frombuffer(data[start:end], dtype=TYPES[entry["dtype"]]).reshape(entry["shape"])
        tensors[name], types[name] = array.copy(), entry["dtype"]
    return tensors, types, step


def expected(path):
    return json.loads(path.with_suffix(".expected.json").read_text())["requests"]


def flat(step, tensors):
    """What a step of a stack looks like: one entry a row."""
    requests = step["requests"]
    decode = step["phase"] == "decode"
    rows = [r.get("seqlen_q", 1) if decode else 1 for r in requests]
    positions = [r["seqlen_k"] - (r["seqlen_q"] - 1 if decode else 0) for r in requests]
    # A step has one draft number; where a file's requests differ, their positions take the difference.
    draft = step.get("draft_model", False)
    first = requests[0].get("draft_step", 0)
    positions = [p + (r["draft_step"] - first if draft else 0) for p, r in zip(positions, requests)]
    golden = [(r.get("golden", []) + [-1] * n)[:n] for r, n in zip(requests, rows)]
    given = {
        "positions": np.array(positions, dtype=np.int64),
        "slots": np.repeat(np.arange(len(rows), dtype=np.int32), rows),
        "golden": np.array(sum(golden, []), dtype=np.int64) if any(r.get("golden") for r in requests) else None,
        "mask": tensors.get("token_bitmask"),
    }
    if draft:
        given["position_offsets"] = np.array([r["last_valid_offset"] for r in requests], dtype=np.int32)
        given["draft_step"] = first
    return requests, rows, given, decode


def run(path, make, device="cpu", force_topk=None, **extra):
    """Every result the vector asks for, as the result document has it; numbers are exact."""
    tensors, types, step = read(path)
    requests, rows, given, decode = flat(step, tensors)
    bf16 = types["logits"] == "BF16"
    total, vocab = tensors["logits"].shape
    force_topk = step.get("force_topk", 0) if force_topk is None else force_topk
    columns = min(force_topk, vocab) if force_topk else vocab
    opened = samedraw.Device(device)
    params = [r.get("params", {}) for r in requests]
    sampler = samedraw.Sampler(
        opened, total, vocab, slots=len(requests), force_topk=force_topk, verify=decode, remap="draft_index" in tensors
    )
    for slot, (request, p) in enumerate(zip(requests, params)):
        keys = ("temperature", "top_p", "top_k", "min_p", "filter_order")
        sampler.set_params(slot, seed=request["seq_seed"], **{k: p[k] for k in keys if k in p})
        opened.synchronize()
    widest = min(max((p.get("top_logprobs", 0) for p in params), default=0), columns)
    out = {
        "tokens": np.full(total, -7, dtype=np.int64),
        "logprobs": np.full(total, 7, dtype=np.float32),
        "ranks": np.full(total, -7, dtype=np.int32),
        "kept_counts": np.full(total, -7, dtype=np.int32),
        "status": np.full(total, -7, dtype=np.int32),
    }
    if widest:
        out["top_ids"] = np.zeros((total, widest), dtype=np.int32)
        out["top_logprobs"] = np.zeros((total, widest), dtype=np.float32)
        out["top_counts"] = np.zeros(total, dtype=np.int32)
    for flag, name in (("sum_smaller_probs",) * 2, ("raw_logprobs",) * 2):
        if step.get(flag):
            out[name] = np.zeros(total, dtype=np.float32)
    if step.get("dense_logprobs"):
        out["dense"] = np.zeros((total, columns), dtype=np.float32)
    arrays = {name: make(array) if isinstance(array, np.ndarray) else array for name, array in {**given, **out}.items()}
    logits = make(tensors["logits"], bf16=True) if bf16 else make(tensors["logits"])
    if decode:
        accepted = make(np.full(len(rows), -7, dtype=np.int32))
        arrays["verify"] = verification(step, tensors, requests, rows, make, accepted)
    sampler.step(logits, force_topk=force_topk, **arrays, **extra)
    opened.synchronize()
    back = {name: host(arrays[name]) for name in out}
    back["accepted"] = host(accepted) if decode else np.zeros(len(rows), dtype=np.int32)
    return requests, rows, back, (sampler, logits, arrays)


def verification(step, tensors, requests, rows, make, accepted):
    first = np.concatenate(([0], np.cumsum(rows))).astype(np.int32)
    ids, pool, used = [], [], 0
    for request, n in zip(requests, rows):
        ids += request.get("draft_token_ids", []) + [-1]
        pool += list(range(used, used + n - 1)) + [-1]
        used += n - 1
    given = {
        "first_rows": make(first),
        "row_to_request": make(np.repeat(np.arange(len(rows), dtype=np.int32), rows)),
        "draft_ids": make(np.array(ids, dtype=np.int64)),
        "accepted": accepted,
    }
    mode = "chain" if step.get("verify") == "chain" else "one_hot"
    if mode != "chain" and tensors.get("draft_logprobs") is not None and tensors["draft_logprobs"].size:
        mode = "rejection"
        given["draft_logprobs"] = make(tensors["draft_logprobs"])
        given["draft_rows"] = make(np.array(pool, dtype=np.int32))
        if "draft_index" in tensors:
            given["draft_columns"] = make(tensors["draft_index"])
    return samedraw.Verify(mode, positions=step.get("positions", "strided"), **given)


def host(array):
    return array.cpu().numpy() if hasattr(array, "cpu") else np.asarray(array)


def same_float(got, want):
    """Equal to the last bit; a document's null is -inf."""
    want = np.float32(-np.inf) if want is None else np.float32(want)
    return got.tobytes() == want.tobytes()


def differences(path, result):
    """What of the result is not the vector's, in words."""
    requests, rows, back, _ = result
    wrong, row = [], 0
    for number, (request, want) in enumerate(zip(requests, expected(path))):
        if int(back["accepted"][number]) != want["accepted"]:
            wrong.append(f"{request['id']}: accepted {back['accepted'][number]}, expected {want['accepted']}")
        for i in range(rows[number]):
            at = row + i
            bits = sum(STATUS[name] for name in want["status"][i])
            exact = (
                ("token", int(back["tokens"][at]), want["tokens"][i]),
                ("rank", int(back["ranks"][at]), want["ranks"][i] or 0),
                ("kept", int(back["kept_counts"][at]), want["kept"][i]),
                ("status", int(back["status"][at]), bits),
            )
            wrong += [f"{request['id']}[{i}]: {what} {g}, expected {w}" for what, g, w in exact if g != w]
            floats = [("logprob", back["logprobs"][at], want["logprobs"][i])]
            for name in ("sum_smaller_probs", "raw_logprobs"):
                if want.get(name) is not None:
                    floats.append((name, back[name][at], want[name][i]))
            if want.get("dense_logprobs") is not None:
                floats += [("dense", g, w) for g, w in zip(back["dense"][at], want["dense_logprobs"][i])]
            if want.get("top_logprobs") is not None:
                listed = want["top_logprobs"][i]
                ids = [int(v) for v in back["top_ids"][at][: len(listed)]]
                if ids != [entry[0] for entry in listed]:
                    wrong.append(f"{request['id']}[{i}]: top ids {ids}")
                floats += [("top", g, entry[1]) for g, entry in zip(back["top_logprobs"][at], listed)]
            wrong += [f"{request['id']}[{i}]: {what} {g!r}, expected {w!r}" for what, g, w in floats if not same_float(g, w)]
        row += rows[number]
    return wrong
