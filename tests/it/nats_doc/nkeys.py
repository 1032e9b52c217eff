"""What nats-py uses of the package `nkeys`, which is in no registry as a wheel: signatures of a user's nkey (Ed25519, RFC 8032)."""

import base64
import hashlib

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P


def add(one, other):
    """The sum of two points in extended coordinates (RFC 8032, section 5.1.4)."""
    a = (one[1] - one[0]) * (other[1] - other[0]) % P
    b = (one[1] + one[0]) * (other[1] + other[0]) % P
    c, d = 2 * one[3] * other[3] * D % P, 2 * one[2] * other[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(number, point):
    product = (0, 1, 1, 0)
    while number > 0:
        if number & 1:
            product = add(product, point)
        point, number = add(point, point), number >> 1
    return product


def base_point():
    y = 4 * pow(5, P - 2, P) % P
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    x = P - x if x & 1 else x
    return x, y, 1, x * y % P


BASE = base_point()


def encoded(point):
    inverse = pow(point[2], P - 2, P)
    x, y = point[0] * inverse % P, point[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def crc16(data):
    """XMODEM, as keys of NATS end with."""
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc.to_bytes(2, "little")


class KeyPair:
    def __init__(self, seed):
        digest = hashlib.sha512(seed).digest()
        number = int.from_bytes(digest[:32], "little")
        self.scalar, self.prefix = number & (1 << 254) - 8 | 1 << 254, digest[32:]
        self.point = encoded(times(self.scalar, BASE))

    @property
    def public_key(self):
        user = bytes([20 << 3]) + self.point
        return base64.b32encode(user + crc16(user)).rstrip(b"=")

    def sign(self, message):
        hashed = lambda *parts: int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little") % L
        nonce = hashed(self.prefix, message)
        commitment = encoded(times(nonce, BASE))
        answer = (nonce + hashed(commitment, self.point, message) * self.scalar) % L
        return commitment + answer.to_bytes(32, "little")

    def wipe(self):
        self.scalar, self.prefix = 0, b""


def from_seed(seed):
    text = bytes(seed)
    raw = base64.b32decode(text + b"=" * (-len(text) % 8))
    assert crc16(raw[:-2]) == raw[-2:], "no seed"
    return KeyPair(raw[2:34])
