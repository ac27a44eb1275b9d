#!/usr/bin/env python3
"""Prints the stored vectors of the self-test (core/self_test/vectors.cpp): norm and dot product of each output.

Usage: make_self_test.py

Formulas in NumPy's f64, without roundings of the operands' formats: casts of these inputs to float8 and MXFP8 are
exact.
"""

import numpy as np


def values(shape, seed):
    i = np.arange(int(np.prod(shape)), dtype=np.uint64)
    mask = np.uint64(0xFFFFFFFF)
    h = (i * np.uint64(2654435761) + np.uint64(seed * 0x9E3779B9 & 0xFFFFFFFF)) & mask
    h = ((h ^ (h >> np.uint64(15))) * np.uint64(2246822519)) & mask
    h ^= h >> np.uint64(13)
    return ((h % np.uint64(15)).astype(np.float64) - 7).reshape(shape) / 8


def show(name, *outputs):
    rows = []
    for x in outputs:
        rows.append(f"{{{np.linalg.norm(x.ravel()):.9g}, {np.dot(x.ravel(), values((x.size,), 99)):.9g}}}")
    print(f'{{"{name}", {{{", ".join(rows)}}}}},')


def groups(ends):
    return list(zip([0] + ends[:-1], ends))


def grouped(x, b, ends):
    """C[r] = x[r] b[e]."""
    c = np.zeros((x.shape[0], b.shape[2]))
    for e, (begin, end) in enumerate(groups(ends)):
        c[begin:end] = x[begin:end] @ b[e]
    return c


def wgrad(x, g, ends):
    return np.stack([x[begin:end].T @ g[begin:end] for begin, end in groups(ends)])


def transposed(b):
    return b.transpose(0, 2, 1)


def softmax(s):
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def attention(q, k, v, dout, causal):
    """One sequence; [rows, heads, dim]. Returns out, dq, dk, dv."""
    out, dq, dk, dv = np.zeros_like(q), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    share = q.shape[1] // k.shape[1]
    for h in range(q.shape[1]):
        kh = h // share
        s = q[:, h] @ k[:, kh].T * 0.125
        if causal:
            s = np.where(np.tril(np.ones(s.shape)) > 0, s, -np.inf)
        p = softmax(s)
        out[:, h] = p @ v[:, kh]
        if dout is None:
            continue
        dp = dout[:, h] @ v[:, kh].T
        ds = p * (dp - (dp * p).sum(-1, keepdims=True)) * 0.125
        dq[:, h] = ds @ k[:, kh]
        dk[:, kh] += ds.T @ q[:, h]
        dv[:, kh] += p.T @ dout[:, h]
    return out, dq, dk, dv


def nvfp4(x):
    """Blocks of 16: a scale rounded to e4m3, values to e2m1, both to nearest even."""
    blocks = x.reshape(-1, 16)
    amax = np.abs(blocks).max(-1, keepdims=True) / 6
    step = 2.0 ** (np.floor(np.log2(amax)) - 3)
    scale = np.round(amax / step) * step
    a = np.minimum(np.abs(blocks) / scale, 6)
    step = np.where(a < 2, 0.5, np.where(a < 4, 1, 2))
    return (np.sign(blocks) * np.round(a / step) * step * scale).reshape(x.shape)


def main():
    a = values((64, 128), 1)
    show("gemm", a @ values((96, 128), 2).T, a @ values((128, 96), 3), a.T @ values((64, 96), 4))
    b = values((96, 256), 6)
    show("few_row_gemm", values((1, 256), 5) @ b.T, values((4, 256), 5) @ b.T)
    ends = [192, 512, 560]
    x, b, g = values((576, 64), 11), values((3, 64, 64), 12), values((576, 64), 13)
    show("sm90_grouped_gemm", grouped(x, transposed(b), ends), grouped(x, b, ends), wgrad(x, g, ends))
    ends = [192, 512, 544]
    x, b, g = values((576, 64), 21), values((3, 64, 64), 22), values((576, 64), 23)
    show("sm90_grouped_float8", grouped(x, transposed(b), ends), wgrad(x, g, ends))
    ends = [128, 512, 640]
    x, b, g = values((640, 128), 31), values((3, 128, 128), 32), values((640, 128), 33)
    show("sm90_block_float8", grouped(x, transposed(b), ends), wgrad(x, g, ends))
    c = values((64, 128), 41) @ values((96, 128), 42).T
    show("sm90_int8_gemm", c, c)  # before quantization
    show("cublaslt_float8", c, c)
    show("sm90_low_rank_gemm",
         values((512, 64), 51) @ values((128, 64), 52).T + values((512, 16), 53) @ values((128, 16), 54).T)
    a = values((256, 64), 61)
    show("sm90_symmetric_gemm", a @ a.T)

    q, k, v, dout = (values((128, heads, 64), seed) for heads, seed in ((4, 71), (2, 72), (2, 73), (4, 74)))
    parts = [attention(*(t[begin:begin + 64] for t in (q, k, v, dout)), True) for begin in (0, 64)]
    show("cudnn_attention", *(np.concatenate([part[i] for part in parts]) for i in range(4)),
         *attention(q, k, v, dout, True))
    show("decode_attention",
         attention(values((1, 4, 64), 75), values((40, 2, 64), 76), values((40, 2, 64), 77), None, False)[0])

    outputs = []
    for vocabulary in (32768, 40960):
        logits, labels = values((4, vocabulary), 81), [7, 30000, -100, 0]
        p, losses = softmax(logits), np.zeros(4)
        for row, label in enumerate(labels):
            if label < 0:
                p[row] = 0
                continue
            losses[row] = -np.log(p[row, label])
            p[row, label] -= 1
        outputs += [losses, p]
    show("cluster_cross_entropy", *outputs)

    x, weight, dy = values((32, 256), 91), values((256,), 92), values((32, 256), 93)
    rstd = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    n = x * rstd
    dn = dy * weight
    show("rms_norm", n * weight, rstd * (dn - n * (dn * n).mean(-1, keepdims=True)), (dy * n).sum(0))

    x, cos, sin = values((16, 4, 64), 101), values((8, 32), 102), values((8, 32), 103)
    at = [0, 1, 2, 3, 4, 5, 6, 7, 7, 6, 5, 4, 3, 2, 1, 0]
    outputs = []
    for sign in (1, -1):
        c, s, x1, x2 = cos[at][:, None], sign * sin[at][:, None], x[..., :32], x[..., 32:]
        outputs.append(np.concatenate([x1 * c - x2 * s, x2 * c + x1 * s], -1))
    show("rope", *outputs)

    gate, up = np.split(values((32, 256), 111), 2, -1)
    dout, sigmoid = values((32, 128), 112), 1 / (1 + np.exp(-gate))
    dgate = dout * up * sigmoid * (1 + gate * (1 - sigmoid))
    show("swiglu", gate * sigmoid * up, np.concatenate([dgate, dout * gate * sigmoid], -1))

    ids = [3, 0, 63, 3, 17, 3, 40, 0]
    table, dout, dtable = values((64, 128), 121), values((8, 128), 122), np.zeros((64, 128))
    np.add.at(dtable, ids, dout)
    show("embedding", table[ids], dtable)

    p, g, m, lr = values((1000,), 131), values((1000,), 132), values((1000,), 133), 0.125
    p *= 1 - lr * 0.1
    m += (1 - 0.9) * (g - m)
    v = (1 - 0.999) * g * g
    p -= lr / (1 - 0.9**3) * m / (np.sqrt(v) / np.sqrt(1 - 0.999**3) + 0.125)
    show("adamw", p, m, v)

    x = values((32, 128), 141)
    show("quantize", x, x, nvfp4(x))


if __name__ == "__main__":
    main()
