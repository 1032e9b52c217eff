"""Reads a file of a result over NATS, with nothing but a NATS client, and says how fast.

    pip install nats-py xxhash
    python examples/read_result.py URL CLUSTER TENANT ID [FILE] [--under-way N] [--slow BYTES_PER_S]

Several requests are under way at a time, which hides the way there and back; each answer is compared with its hash.
"""

import argparse
import asyncio
import json
import time

import nats
import xxhash

LENGTH = 512 * 1024


async def ask(nc, subject, request):
    answer = await nc.request(subject, json.dumps(request).encode(), timeout=30)
    if (answer.headers or {}).get("Exo-Error"):
        raise SystemExit(answer.data.decode())
    return answer


async def main(args):
    nc = await nats.connect(args.url)
    subject = f"exo.v1.{args.cluster}.api.{args.tenant}.result"
    files = json.loads((await ask(nc, subject, {"op": "stat", "id": args.id})).data)["files"]
    file = next(file for file in files if file["name"] == args.file) if args.file else files[0]
    pieces, begins = [], 0
    for member in file["members"]:
        # An answer ends where a member does.
        for at in range(begins, begins + member["bytes"], LENGTH):
            pieces.append((at, min(LENGTH, begins + member["bytes"] - at)))
        begins += member["bytes"]

    async def piece(at, length):
        request = {"id": args.id, "file": file["name"], "offset": at, "length": length}
        answer = await ask(nc, subject, request)
        assert len(answer.data) == length, (len(answer.data), length)
        assert xxhash.xxh3_128_hexdigest(answer.data) == answer.headers["Exo-Hash"], at
        return answer.data

    whole, total, begun, waiting = xxhash.xxh3_128(), 0, time.monotonic(), []
    for at, length in pieces:
        waiting.append(asyncio.create_task(piece(at, length)))
        if len(waiting) >= args.under_way:
            data = await waiting.pop(0)
            whole.update(data)
            total += len(data)
            if args.slow:
                await asyncio.sleep(len(data) / args.slow)
    for task in waiting:
        data = await task
        whole.update(data)
        total += len(data)
    seconds = time.monotonic() - begun
    assert total == file["available"] and file["hash"] in (None, whole.hexdigest())
    print(f"{total} bytes in {seconds:.2f} s: {total / seconds / 1e9:.3f} GB/s, {args.under_way} requests under way")
    await nc.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("cluster")
    parser.add_argument("tenant")
    parser.add_argument("id")
    parser.add_argument("file", nargs="?")
    parser.add_argument("--under-way", type=int, default=4)
    parser.add_argument("--slow", type=float, default=0)
    asyncio.run(main(parser.parse_args()))
