"""What docs/nats.md uses of the `nats` command, which is in no registry of packages: `req`, `sub` and `micro`, with its words.

As the command does, it takes the context that NATS_CONTEXT names, below $XDG_CONFIG_HOME/nats/context; else NATS_URL says where the server is.

    python cli.py [--server URL] req [-H NAME:VALUE]... SUBJECT BODY
    python cli.py [--server URL] sub SUBJECT          (twenty messages)
    python cli.py [--server URL] micro ls             (of each service a line of JSON, here and below)
    python cli.py [--server URL] micro info|stats NAME
"""

import argparse
import asyncio
import json
import os
import ssl
import sys
from pathlib import Path

import nats
from nats.micro.service import ServiceInfo, ServicePing, ServiceStats

# What is asked, what answers are called, and the client library's own reader of them.
MICRO = {
    "ls": ("PING", "io.nats.micro.v1.ping_response", ServicePing),
    "info": ("INFO", "io.nats.micro.v1.info_response", ServiceInfo),
    "stats": ("STATS", "io.nats.micro.v1.stats_response", ServiceStats),
}


async def micro(nc, args):
    verb, kind, reader = MICRO[args.question]
    subject = f"$SRV.{verb}" + (f".{args.name}" if args.name else "")
    inbox = nc.new_inbox()
    answers = await nc.subscribe(inbox)
    await nc.publish(subject, reply=inbox)
    while True:
        try:
            # As the command does: it is over when nobody has answered for a while.
            message = await answers.next_msg(timeout=1)
        except nats.errors.TimeoutError:
            return
        answer = json.loads(message.data)
        assert answer["type"] == kind, answer
        reader.from_dict(answer)
        print(json.dumps(answer), flush=True)


def connection(server):
    """How the server is reached: nats-py's words for what a context says."""
    name = os.environ.get("NATS_CONTEXT")
    if not name:
        return {"servers": server}
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "nats" / "context" / f"{name}.json"
    context = json.loads(path.read_text())
    tls = ssl.create_default_context(cafile=context["ca"])
    tls.load_cert_chain(context["cert"], context["key"])
    prefix = context["inbox_prefix"]
    return {"servers": context["url"], "tls": tls, "nkeys_seed": context["nkey"], "inbox_prefix": prefix}


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", default=os.environ.get("NATS_URL", "nats://127.0.0.1:4222"))
    commands = parser.add_subparsers(dest="command", required=True)
    req = commands.add_parser("req")
    req.add_argument("-H", dest="headers", action="append", default=[])
    req.add_argument("subject")
    req.add_argument("body")
    commands.add_parser("sub").add_argument("subject")
    services = commands.add_parser("micro")
    services.add_argument("question", choices=MICRO)
    services.add_argument("name", nargs="?")
    args = parser.parse_args()
    nc = await nats.connect(**connection(args.server), max_reconnect_attempts=1)
    try:
        if args.command == "req":
            headers = dict(header.split(":", 1) for header in args.headers) or None
            answer = await nc.request(args.subject, args.body.encode(), timeout=15, headers=headers)
            print(answer.data.decode())
        elif args.command == "micro":
            await micro(nc, args)
        else:
            heard = await nc.subscribe(args.subject)
            await nc.flush()
            print("subscribed", flush=True)
            for _ in range(20):
                message = await heard.next_msg(timeout=60)
                print(message.subject, message.data.decode(), flush=True)
    finally:
        await nc.close()


sys.exit(asyncio.run(main()))
