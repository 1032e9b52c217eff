"""Jobs of an exobus cluster from Python, over NATS: needs nats-py, and nothing of exobus.

    python jobs.py nats://127.0.0.1:4222 /data/in /data/out

A cluster that asks who somebody is wants a context of the `nats` command (with an nkey: pip install nkeys), and its submitters' token:

    python jobs.py --context submitter.json --token-file submitters.token tls://127.0.0.1:4222 /data/in /data/out

Submits a sort of the records in /data/in, watches it to its end, reads what it returned, and cancels a second one.
"""

import argparse
import asyncio
import json
import ssl
import uuid
from pathlib import Path

import nats
from nats.errors import NoRespondersError, TimeoutError as NatsTimeout


class ExobusError(Exception):
    """What the cluster answers instead of what was asked for."""

    def __init__(self, code, message, at=None):
        super().__init__(f"{at}: {message}" if at else message)
        self.code = code


class Exobus:
    """The door of a cluster, for a tenant."""

    def __init__(self, nc, cluster="local", tenant="default", token=None):
        self.nc, self.prefix = nc, f"exo.v1.{cluster}.api.{tenant}"
        self.headers = {"Exobus-Token": token} if token else None

    async def ask(self, verb, request="", timeout=12.0):
        payload = request if isinstance(request, str) else json.dumps(request)
        answer = await self.nc.request(f"{self.prefix}.{verb}", payload.encode(), timeout=timeout, headers=self.headers)
        told = json.loads(answer.data)
        if "error" in told:
            error = told["error"]
            raise ExobusError(error["code"], error["message"], error.get("at"))
        return told

    async def submit(self, **spec):
        """One job, however often it has to be asked for: the key says that it is the same."""
        spec.setdefault("idempotency_key", uuid.uuid4().hex)
        for attempt in range(20):
            try:
                return (await self.ask("submit", spec))["job"]
            except (NoRespondersError, NatsTimeout):
                await asyncio.sleep(0.2)
            except ExobusError as error:
                if error.code not in ("unavailable", "no_scheduler"):
                    raise
                await asyncio.sleep(0.2)
        raise TimeoutError("the cluster does not answer")

    async def wait(self, job, told=print):
        """Until the job is over; `told` is called with each status."""
        after = 0
        while True:
            status = await self.ask("watch", {"job": job, "after": after, "wait_ms": 1000})
            told(status)
            if status["state"] in ("succeeded", "failed", "cancelled"):
                return status
            after = status.get("last", after)


def from_context(path):
    """What nats-py wants to know of a context with certificates and an nkey."""
    context = json.loads(Path(path).read_text())
    tls = ssl.create_default_context(cafile=context["ca"])
    tls.load_cert_chain(context["cert"], context["key"])
    return {"tls": tls, "nkeys_seed": context["nkey"], "inbox_prefix": context["inbox_prefix"]}


async def main(args):
    source, target = args.source, args.target
    nc = await nats.connect(args.url, **(from_context(args.context) if args.context else {}))
    try:
        exobus = Exobus(nc, token=Path(args.token_file).read_text().strip() if args.token_file else None)
        job = await exobus.submit(kind="sort", inputs=[source], output=target)

        def show(status):
            progress = status.get("progress", {})
            print(status["state"], progress.get("tasks_done", 0), "of", progress.get("tasks", 0), "tasks")

        status = await exobus.wait(job, show)
        print("it has", status["state"], status.get("error", ""))
        print("it returned", (await exobus.ask("value", {"job": job}))["value"])

        other = await exobus.submit(kind="sort", inputs=[source], output=target + "-2")
        cancelled = await exobus.ask("cancel", {"job": other})
        print("the other one is", cancelled["state"])

        try:
            await exobus.submit(kind="sort", inputs=[source], outptu=target)
        except ExobusError as error:
            print("refused:", error.code, error)

        listed = await exobus.ask("list", {"all": True, "limit": 10})
        print("jobs:", [(row["job"][:12], row["state"]) for row in listed["jobs"]])
    finally:
        await nc.drain()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--context")
    parser.add_argument("--token-file")
    for name in ("url", "source", "target"):
        parser.add_argument(name)
    asyncio.run(main(parser.parse_args()))
