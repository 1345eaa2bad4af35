"""The case `simpy` of crates/sim/benches/speed.rs in SimPy: ten servers of four cores, processor sharing, behind a limit
on requests in flight, at 1.2 times their capacity.

Usage: limited.py REQUESTS. Prints requests, CPU seconds, the share admitted and the mean response time of the admitted
in milliseconds.
"""

import heapq
import random
import sys
import time

import simpy

SERVERS, CORES, LIMIT = 10, 4, 60
MEAN = 0.01
RATE = 1.2 * SERVERS * CORES / MEAN


class Sharing:
    """Processor sharing by virtual time: a process that sleeps until the next job is done, and is interrupted when one
    comes."""

    def __init__(self, env):
        self.env = env
        self.clock = 0.0
        self.changed = 0.0
        self.jobs = []
        self.started = 0
        self.idle = None
        self.process = env.process(self.run())

    def rate(self):
        return min(1.0, CORES / len(self.jobs)) if self.jobs else 1.0

    def advance(self):
        self.clock += (self.env.now - self.changed) * self.rate()
        self.changed = self.env.now

    def serve(self, work):
        self.advance()
        done = self.env.event()
        self.started += 1
        heapq.heappush(self.jobs, (self.clock + work, self.started, done))
        if self.idle is not None:
            self.idle.succeed()
            self.idle = None
        else:
            self.process.interrupt()
        yield done

    def run(self):
        while True:
            try:
                if not self.jobs:
                    self.idle = self.env.event()
                    yield self.idle
                    continue
                yield self.env.timeout(max(0.0, self.jobs[0][0] - self.clock) / self.rate())
                self.advance()
                _, _, done = heapq.heappop(self.jobs)
                done.succeed()
            except simpy.Interrupt:
                pass


class Service:
    def __init__(self, env):
        self.env = env
        self.servers = [Sharing(env) for _ in range(SERVERS)]
        self.at = [0] * SERVERS
        self.in_flight = 0
        self.admitted = 0
        self.total_response = 0.0

    def request(self, server, work):
        arrived = self.env.now
        yield from self.servers[server].serve(work)
        self.at[server] -= 1
        self.in_flight -= 1
        self.total_response += self.env.now - arrived

    def arrivals(self, requests):
        for _ in range(requests):
            yield self.env.timeout(random.expovariate(RATE))
            if self.in_flight >= LIMIT:
                continue
            # The one with the least in flight; of equals, any.
            least = min(self.at)
            server = random.choice([n for n, count in enumerate(self.at) if count == least])
            self.at[server] += 1
            self.in_flight += 1
            self.admitted += 1
            self.env.process(self.request(server, random.expovariate(1.0 / MEAN)))


def main():
    requests = int(sys.argv[1])
    random.seed(1)
    env = simpy.Environment()
    service = Service(env)
    start = time.process_time()
    env.process(service.arrivals(requests))
    env.run()
    took = time.process_time() - start
    mean = service.total_response / service.admitted * 1e3
    print(f"{requests} {took:.3f} {service.admitted / requests:.4f} {mean:.3f}")


if __name__ == "__main__":
    main()
