"""Watch a run's speed: report ranks slower than others, devices that turn bad, and drops of throughput.

Every few steps each rank times some of its blocks (engine/rank_speed.py) and sends the figure, with readings of its
GPU, to all ranks (engine/rank_speed.py); rank 0 judges (slowness_rules.py) and reports. No rank waits for this.
"""

from collections.abc import Sequence

from benchmark.run_record.endings import StopReason
from benchmark.run_record.events.event_log import EventLog
from benchmark.training.engine.rank_speed import OwnCompute, RankTable
from benchmark.training.engine.train_state import TrainState
from benchmark.training.machine.gpus import FIGURES, TROUBLE, DeviceReading, new_faults, watch_device
from benchmark.training.observer import FinishedStep, Observer
from benchmark.training.observers.slowness_rules import SlowRank, SlowRankDetector, SpeedChange, ThroughputDropDetector

WARM_UP = 2
"""First steps of a process that are not judged, because they allocate and connect."""
MOST_NAMED = 8
"""Most ranks in one message; events list all."""


class SpeedWatch(Observer):
    """Time the steps of this process; rank 0 also judges all of them."""

    def __init__(self, interval: int, state: TrainState, hosts: Sequence[str], events: EventLog) -> None:
        """``interval``: steps between comparisons of the ranks; 0 compares none. ``hosts``: names of the machines by
        rank."""
        world, system = state.world, state.system
        self._interval, self._world, self._hosts, self._events = interval, world, hosts, events
        self._progress = state.progress
        self._devices_per_node = system.devices_per_node
        self._steps_seen, self._is_due = 0, False
        ranks_of_a_part = world.size // system.pipeline_parallel
        self._slow_ranks = SlowRankDetector([rank // ranks_of_a_part for rank in range(world.size)])
        # on a CPU other programs take cores as they like: an alarm would be about them
        self._throughput = ThroughputDropDetector() if world.device.type == "cuda" else None
        self._device_rows = [DeviceReading().row() for _ in range(world.size)]
        self._reported: set[tuple[int, str]] = set()
        if self._interval:
            self._timer = OwnCompute(world.device)
            state.pipeline.watch(self._timer)
            self._table = RankTable(world, 1 + FIGURES)
            self._health = watch_device(world.device)

    def before_step(self) -> None:
        self._is_due = self._interval > 0 and self._progress.steps % self._interval == 0
        if self._is_due and self._steps_seen >= WARM_UP:
            self._timer.start()

    def step_done(self, step: FinishedStep) -> None:
        """Exchange figures, and judge the step's time on rank 0. Collective."""
        step_s, steps = step.seconds(), self._progress.steps
        self._steps_seen += 1
        if self._interval:
            self._exchange(steps)
        disturbed = step.result.flags.writer_busy  # a checkpoint that is being written slows the step
        judges = self._world.rank == 0 and self._steps_seen > WARM_UP and not disturbed
        if judges and self._throughput is not None and (change := self._throughput.add(steps, step_s)) is not None:
            self._tell_of_change(change)

    def end(self, end: StopReason) -> None:
        """Receive the last rows, so that no message is under way when its memory is freed. Collective."""
        if not self._interval:
            return
        self._table.receive()
        if self._health is not None:
            self._health.close()

    def _exchange(self, steps: int) -> None:
        """Judge the rows that were sent a step ago, and send the measurements of this step."""
        rows = self._table.receive()
        if rows is not None and self._world.rank == 0:
            self._tell_of_devices(rows)
            self._tell_of_ranks(steps, [row[0] for row in rows])
        if self._is_due:
            seconds = self._timer.stop()
            reading = self._health.newest() if self._health is not None else None
            self._table.send([0.0 if seconds is None else seconds, *(reading or DeviceReading()).row()])

    def _tell_of_ranks(self, steps: int, seconds: Sequence[float]) -> None:
        verdict = self._slow_ranks.add(seconds)
        if not (verdict.slow or verdict.recovered):
            return
        self._events.note(
            "slow_ranks",
            steps=steps,
            slow=[
                {
                    "rank": rank_speed.rank,
                    "host": self._hosts[rank_speed.rank],
                    "device": self._device(rank_speed.rank),
                    "excess": round(rank_speed.excess, 4),
                    "block_s": rank_speed.seconds,
                    "peers_block_s": rank_speed.peers_s,
                    "health": self._health_of(rank_speed.rank),
                }
                for rank_speed in verdict.slow
            ],
            recovered=list(verdict.recovered),
            block_us=[round(block_s * 1e6) for block_s in seconds],
        )
        for slow in verdict.slow[:MOST_NAMED]:
            self._events.warn(f"after step {steps}: {self._slow_line(slow)}")
        if len(verdict.slow) > MOST_NAMED:
            self._events.warn(f"and {len(verdict.slow) - MOST_NAMED} more ranks, in events.jsonl")
        for rank in verdict.recovered[:MOST_NAMED]:
            line = f"after step {steps}: {self._rank_text(rank)} computes as fast as the others again"
            self._events.note("message", line)

    def _tell_of_devices(self, rows: Sequence[Sequence[float]]) -> None:
        """Report each kind of trouble of a device once."""
        for rank, sent_row in enumerate(rows):
            former_row, row = self._device_rows[rank], sent_row[1:]
            self._device_rows[rank] = list(row)
            if former_row[TROUBLE] == row[TROUBLE]:  # as a rule; 2,048 ranks must not take long
                continue
            former = DeviceReading.of_row(former_row)
            troubles = new_faults(former if former.is_known() else None, DeviceReading.of_row(row))
            for kind, text in troubles.items():
                if (rank, kind) not in self._reported:
                    self._reported.add((rank, kind))
                    fields = {"rank": rank, "host": self._hosts[rank], "device": self._device(rank)}
                    self._events.note("device_health", **fields, trouble=kind, found=text)
                    self._events.warn(f"{self._rank_text(rank)}: {text}")

    def _tell_of_change(self, change: SpeedChange) -> None:
        self._events.note(
            "speed_change",
            kind_of_change=change.kind,
            since=change.since,
            before_s=change.before_s,
            now_s=change.now_s,
            slow=sorted(self._slow_ranks.slow),
        )
        if change.kind == "recovery":
            self._events.note("message", f"since step {change.since} steps take {change.now_s:.4g} s again")
            return
        line = f"since step {change.since} steps take {change.now_s:.4g} s, not {change.before_s:.4g} s: "
        line += f"{change.loss:.1%} of the throughput is lost; "
        slowest = self._slow_ranks.slowest()
        if slowest is not None:
            line += self._slow_line(slowest)
        elif self._interval and self._world.size > 1:
            line += (
                "no rank computes slower than the others, so look at the network, the data and all that the ranks share"
            )
        else:
            line += "ranks are not compared"
        self._events.warn(line)

    def _slow_line(self, slow: SlowRank) -> str:
        health = self._health_of(slow.rank)
        times = f"{slow.seconds * 1000:.3g} ms a block, its peers {slow.peers_s * 1000:.3g} ms"
        return f"{self._rank_text(slow.rank)} computes {slow.excess:.0%} slower: {times}" + (
            f"; {health}" if health else ""
        )

    def _health_of(self, rank: int) -> str:
        return DeviceReading.of_row(self._device_rows[rank]).line()

    def _rank_text(self, rank: int) -> str:
        """Name the rank, machine and device for people: "rank 12 on n2 GPU 4"."""
        device = self._device(rank)
        return f"rank {rank} on {self._hosts[rank]}" + ("" if device is None else f" GPU {device}")

    def _device(self, rank: int) -> int | None:
        """Return the number of the rank's GPU on its machine; None on a CPU."""
        return rank % self._devices_per_node if self._world.device.type == "cuda" else None
