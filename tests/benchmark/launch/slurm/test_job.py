"""What the job does, with stand-ins for Slurm's commands and the run's Python: attempts, nodes, queue, signals."""

import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmark.run_record.attempt_folder import AttemptStart, new_attempt, read_ending, write_start
from benchmark.run_record.file_names import attempt_path
from benchmark.run_record.lease import HeldLease, read_lease
from tests.benchmark.launch.slurm.stand_in_job import Job, option


def test_a_run_that_ends_by_itself_is_not_begun_again(job: Job) -> None:
    done = job.run()
    assert done.returncode == 0, done.stderr
    (attempt,) = job.attempts()
    assert [option(attempt, name) for name in ("--nodes", "--ntasks", "--nodelist")] == ["2", "16", "n1,n2"]
    assert [option(attempt, name) for name in ("ATTEMPT", "LAUNCH_ID", "MASTER_ADDR")] == ["0001", "5", "address-of-n1"]
    assert "--gpus" not in attempt
    assert "warning: the nodes have GPUs that the job did not get" in done.stdout
    assert option(attempt, "SUBMITTED_S").isdigit()
    assert not job.calls("requeue") and not job.calls("sbatch") and not job.calls("JobName")
    assert "2 of 3 nodes are used, 1 are spare" in done.stdout
    assert job.log()[-2:] == ["attempt 0001: n1 n2", "attempt 0001: the run has ended: success"]
    sentinels = job.calls("srun", "launch.slurm.sentinel")[0]
    assert option(sentinels, "--nodelist") == "n1,n2,n3" and "--no-kill " in sentinels
    assert f"-m benchmark.launch.slurm.sentinel {job.log_dir} 5-0-tmp." in sentinels
    assert not (job.log_dir / "lease.json").exists()

    again = job.run()
    assert (again.returncode, len(job.attempts())) == (2, 1)
    assert job.log()[-1] == f"error: {job.log_dir}: holds a finished run (success); choose another folder"
    assert len(list((job.log_dir / "attempts").iterdir())) == 1


def test_gpus_of_the_job_are_those_of_its_steps(job: Job) -> None:
    """In a job that has its nodes to itself a step sees no GPU unless it asks; one for each task is inherited."""
    job.answer(statuses="1\n0")
    job.run("image", SLURM_GPUS_ON_NODE="8")
    for phrase in ("interpreter_check", "benchmark train"):
        assert "--gpus-per-node=8" in job.calls("srun", phrase)[0]
    job.begin_again()
    job.run(SLURM_GPUS_ON_NODE="8", SLURM_GPUS_PER_TASK="1")
    assert "--gpus" not in job.attempts()[-1]


def test_a_failed_run_starts_again_without_the_node_that_failed(job: Job) -> None:
    job.answer(statuses="137\n0", during="incident device n1.cluster.local")
    done = job.run()
    assert done.returncode == 0, done.stderr
    first, second = job.attempts()
    assert (option(first, "--nodelist"), option(second, "--nodelist")) == ("n1,n2", "n2,n3")
    assert option(second, "MASTER_ADDR") == "address-of-n2"
    assert option(first, "MASTER_PORT") != option(second, "MASTER_PORT")
    said = "attempt 0001: rank 1 on n1.cluster.local after step 3, in passes: device: why it is so; starting again"
    assert f"{said} from the initial checkpoint, without n1.cluster.local" in job.log()


@pytest.mark.parametrize(
    "lost",
    [
        {"during": 'echo -e "n1 allocated\\nn2 down*\\nn3 allocated" >"$answers/states"'},
        {"silent": "n2"},  # before Slurm notices
    ],
)
def test_nodes_that_are_down_or_silent_are_left_out(lost: dict[str, str], job: Job) -> None:
    job.answer(statuses="1\n0", **lost)
    job.run()
    assert option(job.attempts()[1], "--nodelist") == "n1,n3"
    assert any(line.startswith("attempt 0001: node n2 is lost: ") for line in job.log())


@pytest.mark.parametrize(
    ("answers", "variables"),
    [
        ({"statuses": "1", "during": 'echo "n1,n3" >"$answers/nodes"'}, {"NODES": "3"}),  # too few nodes are left
        ({"statuses": "70", "left": "7200", "during": 'echo 300 >"$answers/left"'}, {}),  # too little time is
        # asked to stop, and failing instead of saving
        ({"statuses": "70", "during": "trap 'exit 70' USR2; kill -USR2 $PPID; while sleep 0.1; do :; done"}, {}),
        # a job that waited behind this one was cancelled
        ({"statuses": "75", "waiting": "77", "during": 'rm "$answers/waiting"'}, {"CHAIN": "1"}),
    ],
)
def test_a_run_that_cannot_go_on_here_goes_back_to_the_queue(
    answers: dict[str, str], variables: dict[str, str], job: Job
) -> None:
    job.answer(**answers)
    assert job.run(**variables).returncode == 75
    assert len(job.attempts()) == 1
    assert job.calls("scontrol requeue 5") and not job.calls("sbatch")
    assert "the run goes on when job 5 has come through the queue again" in job.log()


def test_a_run_that_is_given_up_is_never_requeued(job: Job) -> None:
    job.answer(statuses="2", during="incident input n1", waiting="77")
    done = job.run(CHAIN="1")
    assert done.returncode == 2
    assert len(job.attempts()) == 1
    assert not job.calls("requeue") and not job.calls("sbatch")  # one job waits at a time
    assert job.calls("scancel --state=PENDING 77")
    assert "error: why it is so" in job.log()


def test_a_job_waits_behind_this_one(job: Job) -> None:
    job.answer(statuses="75", during='echo 77 >"$answers/waiting"')
    done = job.run(CHAIN="1", NEW_SNAPSHOT="1", CHAIN_OPTIONS="--mail-type END")
    (queued,) = job.calls("sbatch")
    for word in (
        "--dependency=singleton",
        "--nodes=3",
        "--partition=main",
        "--time=02:00:00",
        "--output=/logs5/slurm-%j.out",
        "--mail-type END",
        f"run_gpt3.sh {job.log_dir} /bpe none",
    ):
        assert word in queued
    assert option(queued, "--job-name") == option(job.calls("scontrol update")[0], "JobName")
    assert "the run goes on in job 77" in job.log()
    assert done.returncode == 75
    assert not job.calls("scontrol requeue")


def test_exit_file_ends_run_and_chain(job: Job) -> None:
    job.log_dir.mkdir()
    (job.log_dir / "exit").touch()
    job.answer(waiting="77")
    done = job.run(CHAIN="1")
    assert done.returncode == 75
    assert not job.attempts()
    assert job.calls("scancel --state=PENDING 77")
    assert not (job.log_dir / "exit").exists()


@pytest.mark.parametrize(("holder", "waits"), [("job 4", False), ("job 5", True)])
def test_a_holder_that_renews_its_lease_is_left_alone(holder: str, waits: bool, job: Job) -> None:
    """Another job in the folder is refused; an earlier instance of this job is waited for."""
    job.log_dir.mkdir()
    job.shorten_lease(4.0)
    lease = HeldLease(job.log_dir, holder, 4.0, "token")
    assert lease.try_to_take(lambda earlier: earlier is None)
    with ThreadPoolExecutor() as pool:
        running, log = pool.submit(job.run), job.log_dir / "slurm_5.out"
        while not running.done() and not (log.exists() and "holds the run" in log.read_text()):
            time.sleep(0.1)
        if waits:
            time.sleep(6.0)
            assert not running.done()
        else:
            running.result()
        lease.leave(release=True)
    assert running.result().returncode == (0 if waits else 2)
    waited = (
        f"{job.log_dir}: {holder} on {socket.gethostname()} holds the run; it is waited for until it has not renewed"
    )
    assert job.log()[0] == f"{waited} its lease for 4 s"
    if not waits:
        assert job.log()[1].endswith(
            f"job 4 on {socket.gethostname()} runs there; end it first, or choose another folder"
        )
        assert not job.attempts() and not (job.log_dir / "snapshot").exists()


@pytest.mark.parametrize(("left", "starts"), [("880", False), ("960", True)])
def test_a_job_without_time_is_refused(job: Job, left: str, starts: bool) -> None:
    job.answer(left=left)
    done = job.run()
    assert done.returncode == (0 if starts else 2), done.stderr
    assert len(job.attempts()) == starts
    assert ("within EXIT_MARGIN_MINUTES=15" in done.stdout) != starts


def test_time_is_counted_on_while_slurm_does_not_say_it(job: Job) -> None:
    job.edit("launch/slurm/job.py", "ASK_S = 60.0", "ASK_S = 0.5")
    away = '"$answers/away"'
    during = f"trap 'rm {away}; exit 75' USR2; touch {away}; while sleep 0.1; do :; done"
    job.answer(left="904", statuses="75", during=during)
    done = job.run()
    assert done.returncode == 75
    assert "time is up in 15 minutes or less: asking the run to save and stop" in done.stdout
    assert job.calls("scontrol requeue 5")


@pytest.mark.parametrize("left", ["840", "Unknown"])
def test_person_may_stop_the_run_at_any_time(left: str, job: Job) -> None:
    job.answer(left=left, statuses="75", during="trap 'exit 75' USR2; kill -USR2 $PPID; while sleep 0.1; do :; done")
    done = job.run(EXIT_MARGIN_MINUTES="1")
    assert done.returncode == 75
    assert "SIGUSR2: asking the run to save and stop" in done.stdout
    assert job.calls("scontrol requeue 5")


def test_order_in_the_first_second_is_obeyed(job: Job) -> None:
    """While the script looks for Python."""
    job.answer(dependencies="kill -USR2 $PPID")
    done = job.run()
    assert done.returncode == 75, done.stdout + done.stderr
    assert "SIGUSR2: asking the run to save and stop" in done.stdout
    assert not job.attempts() and job.calls("scontrol requeue 5")


def test_launcher_that_is_killed_is_started_again(job: Job) -> None:
    """Its processes are killed first, and the next attempt meets at another port."""
    job.shorten_lease(12.0)
    kill = 'if [[ ! -e $answers/once ]]; then touch "$answers/once"; kill -KILL $PPID; sleep 5; fi'
    job.answer(during=kill, statuses="1\n0")
    done = job.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the launcher was killed (status 137)" in done.stdout
    first, second = job.attempts()
    assert option(first, " MASTER_PORT") != option(second, " MASTER_PORT")
    assert (option(first, " ATTEMPT"), option(second, " ATTEMPT")) == ("0001", "0002")
    assert "the launcher was killed" in (job.log_dir / "slurm_5.out").read_text()


def test_launcher_that_is_stopped_is_killed_and_started_again(job: Job) -> None:
    job.script = job.folder / "checkout" / "run_gpt3.sh"
    job.edit("../run_gpt3.sh", "sleep 30", "sleep 0.3")
    job.shorten_lease(12.0)
    stop = 'if [[ ! -e $answers/once ]]; then touch "$answers/once"; kill -STOP $PPID; sleep 5; fi'
    job.answer(during=stop, statuses="1\n0")
    done = job.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the launcher was killed (status 137)" in done.stdout and len(job.attempts()) == 2


def test_launcher_that_is_always_killed_goes_back_to_the_queue(job: Job) -> None:
    job.shorten_lease(12.0)
    job.answer(during="kill -KILL $PPID", statuses="1")
    done = job.run()
    assert done.returncode == 75
    assert (len(job.attempts()), len(job.calls("scontrol requeue 5"))) == (4, 1)


@pytest.mark.parametrize("missing", ["checkout", "interpreter"])
@pytest.mark.parametrize("variables", [{}, {"SLURM_RESTART_COUNT": "1"}, {"CHAINED_JOB": "1"}])
def test_a_job_that_comes_back_to_a_node_without_its_files_goes_to_the_queue_again(
    missing: str, variables: dict[str, str], job: Job
) -> None:
    """A file system is not mounted there, which nobody sees, as somebody does at the first start."""
    if missing == "checkout":
        (job.folder / "checkout").rename(job.folder / "elsewhere")
    else:
        (job.folder / "bin" / "python3").unlink()
        (job.folder / "bin" / "python3").write_text("#!/bin/bash\nexit 1\n")
        (job.folder / "bin" / "python3").chmod(0o755)
    done = job.run("image", **variables)
    goes_back = "the script failed, which has worked before: job 5 goes back to the queue" in done.stderr
    assert goes_back == bool(variables)
    assert goes_back == ((job.answers / "calls").exists() and len(job.calls("scontrol requeue 5")) == 1)
    reason = "submit from its folder" if missing == "checkout" else "expected python3 3.8 or newer"
    assert reason in done.stderr and (goes_back or done.returncode == 2)


def test_a_node_without_its_folder_of_temporary_files_runs_the_launcher(job: Job) -> None:
    done = job.run(TMPDIR="/nonexistent")
    assert (done.returncode, len(job.attempts())) == (0, 1)


def test_srun_that_does_not_see_the_end_is_ended(job: Job) -> None:
    """As when the daemon of a node's step dies: all processes have saved and left."""
    job.edit("launch/slurm/end_signs.py", "ALARM_S = 240.0", "ALARM_S = 2.0")
    start = '{"attempt": "0001", "job": null, "submitted_s": null, "launched_s": null, "started_s": 1.0'
    start += ', "resumed_at": null, "hosts": []}'
    note = '{"by": "signal SIGUSR2", "steps": 3, "saved": true}'
    folder = "$LOG_DIR/attempts/$ATTEMPT"
    during = f"touch {folder}/rank_00000.stacks.txt; sleep 1.5; echo '{start}' >{folder}/attempt.json"
    during = f"{during}; echo '{note}' >$LOG_DIR/stopped.json"
    job.answer(statuses="1", during=f"{during}; exec sleep 60")
    (job.log_dir / "attempts").mkdir(parents=True)
    (job.log_dir / "stopped.json").write_text(note)  # of an earlier attempt
    started = time.monotonic()
    done = job.run()
    assert done.returncode == 75
    assert "srun does not end after its processes failed or ended, or has begun none: ended by force" in done.stdout
    assert "saved and stopped: signal SIGUSR2" in done.stdout
    assert time.monotonic() - started > 3.0  # the earlier attempt's note is no sign of this one's end


def test_srun_that_begins_no_process_is_ended(job: Job) -> None:
    first = '(0.5 if attempt == "0001" else STEP_START_S)'
    job.edit("launch/slurm/job.py", "start_s = STEP_START_S if", f"start_s = {first} if")
    job.answer(statuses="1\n0", during="if [[ $ATTEMPT == 0001 ]]; then exec sleep 60; fi")
    done = job.run()
    assert done.returncode == 0
    assert "or has begun none: ended by force" in done.stdout and len(job.attempts()) == 2


@pytest.mark.parametrize("change", [{"state": "PENDING"}, {"restarts": "1"}])
def test_an_instance_that_slurm_has_ended_stops_and_keeps_the_lease(change: dict[str, str], job: Job) -> None:
    """As when the daemon of the script's node dies: Slurm starts the job elsewhere. The next instance takes the lease
    once it has run out, because processes of this one may live."""
    ((name, value),) = change.items()
    job.answer(statuses="137", during=f'echo {value} >"$answers/{name}"')
    done = job.run()
    assert done.returncode == 75
    assert "the run is stopped here" in done.stdout and "submit" not in done.stdout
    assert (len(job.attempts()), job.calls("requeue")) == (1, [])
    lease = read_lease(job.log_dir)
    assert lease is not None and (lease.holder, lease.attempt) == ("job 5", "0001")


@pytest.mark.parametrize("variables", [{"SLURM_RESTART_COUNT": "1"}, {"CHAINED_JOB": "1"}, {}])
def test_a_job_that_goes_on_with_a_run_that_has_ended_ends_as_the_run(variables: dict[str, str], job: Job) -> None:
    job.log_dir.mkdir()
    (job.log_dir / "summary.json").write_text('{"status": "success"}')
    done = job.run(**variables)
    assert (done.returncode, job.attempts()) == (0 if variables else 2, [])
    if variables:
        assert job.log() == ["the run has ended: success"]


def test_sync_that_hangs_holds_no_run(job: Job) -> None:
    job.edit("launch/slurm/job_steps.py", "CACHES_S = 300.0", "CACHES_S = 0.5")
    job.answer(caches="sleep 30")
    done = job.run()
    assert done.returncode == 0
    assert "the page caches are not dropped: no end after 0.5 s" in done.stdout
    assert "--cache-cleared" not in job.attempts()[0]


def test_a_run_that_cannot_go_back_to_the_queue_is_stopped(job: Job) -> None:
    """Its status says so, and the log has the way on for a person."""
    job.answer(statuses="75", requeue_status="1")
    assert job.run().returncode == 75
    assert job.log()[-1] == "error: it cannot be requeued here; submit the same command again to go on"
    ending = read_ending(job.log_dir / "attempts" / "0001")
    assert ending is not None and (ending.action, ending.status) == ("stop", 75)


@pytest.mark.parametrize(
    ("answers", "line", "action"),
    [
        ({}, "ended by SIGTERM, as by scancel: the same command goes on from the last checkpoint", "stop"),
        ({"waiting": "77"}, "ended by SIGTERM: the run goes on in job 77", "requeue"),
        (
            {"reason": "TimeLimit"},
            "ended by SIGTERM: the run goes on when job 5 has come through the queue again",
            "requeue",
        ),
        (
            {"during": 'echo 1 >"$answers/restarts"; echo COMPLETING >"$answers/state"; '},
            "ended by SIGTERM: the run goes on when job 5 has come through the queue again",
            "requeue",
        ),
    ],
)
def test_sigterm_ends_the_job_for_good(answers: dict[str, str], line: str, action: str, job: Job) -> None:
    during = answers.pop("during", "") + "trap 'exit 75' TERM; kill -TERM $PPID; while sleep 0.1; do :; done"
    job.answer(statuses="75", during=during, **answers)
    done = job.run()
    assert done.returncode == 75
    assert not job.calls("requeue")
    assert job.log()[-1] == line
    ending = read_ending(job.log_dir / "attempts" / "0001")
    assert ending is not None and ending.action == action


def test_a_job_whose_script_was_killed_goes_back_to_the_queue(job: Job) -> None:
    """Slurm ends the job then, with SIGTERM to its processes."""
    kill = "kill -KILL \"$(ps -o ppid= -p $PPID)\"; sleep 0.5; trap 'exit 75' TERM; kill -TERM $PPID"
    job.answer(statuses="75", during=f"{kill}; while sleep 0.1; do :; done")
    assert job.run().returncode == -9
    assert job.log()[-1] == "the run goes on when job 5 has come through the queue again"
    assert job.calls("scontrol requeue 5")


def test_container_runs_every_python(job: Job) -> None:
    job.answer(during='until grep "benchmark plan" "$answers/calls"; do sleep 0.1; done')
    done = job.run("image")
    for phrase in ("check.py python", "check.py options", "environment_snapshot", "benchmark plan", "benchmark train"):
        (call,) = job.calls(phrase)
        assert call.startswith("srun ") and "--container-name gpt3_5" in call
    assert done.returncode == 0


def test_interpreter_that_cannot_run_it_is_one_line(job: Job) -> None:
    job.answer(interpreter="noise\nerror: python3 3.8.10: too old", interpreter_status="2")
    done = job.run()
    assert done.returncode == 2
    assert job.log()[-1] == "error: python3 3.8.10: too old, in CONTAINER none on n1"
    assert not job.attempts()


@pytest.mark.parametrize(
    ("attempts", "command", "consequence"),
    [
        (1, "train", "; back to the queue"),
        (3, "train", "; back to the queue"),
        (4, "train", "; no progress in 5 attempts: given up"),
        (0, "train", ""),
        (1, "preflight", ""),
    ],
)
def test_a_machine_that_refuses_a_run_that_has_begun_sends_it_back_to_the_queue(
    attempts: int, command: str, consequence: str, job: Job
) -> None:
    """As one whose GPUs are gone; a run that never began may have bad input. The first attempt has begun, and later
    ones were refused."""
    job.answer(interpreter="error: PyTorch sees no CUDA device", interpreter_status="2")
    for _ in range(attempts):
        new_attempt(job.log_dir)
    if attempts:
        start = AttemptStart("0001", "5", None, None, 1.0, None, ("n1", "n2"))
        write_start(attempt_path(job.log_dir, "0001"), start)
    done = job.run(SLURM_RESTART_COUNT="1", COMMAND=command)
    goes_back = "queue" in consequence
    assert (done.returncode, len(job.calls("scontrol requeue 5"))) == ((75, 1) if goes_back else (2, 0))
    refusal = f"PyTorch sees no CUDA device, in CONTAINER none on n1{consequence}"
    assert f"error: {refusal}" in job.log()
    if consequence:
        ending = read_ending(attempt_path(job.log_dir, f"{attempts + 1:04d}"))
        assert ending is not None and (ending.reason, ending.action) == (refusal, "requeue" if goes_back else "stop")


@pytest.mark.parametrize("restarts", ["0", "1"])
def test_packages_that_are_gone_are_counted_as_a_refusal_of_the_machine(restarts: str, job: Job) -> None:
    """A job that comes back cannot install them; the launcher, which needs none, says so and counts."""
    job.answer(dependencies="exit 1", interpreter="error: python3: lacks numpy", interpreter_status="3")
    write_start(attempt_path(job.log_dir, "0001"), AttemptStart("0001", "5", None, None, 1.0, None, ("n1", "n2")))
    done = job.run(SLURM_RESTART_COUNT=restarts)
    assert not job.attempts()
    if restarts == "0":
        assert done.returncode != 0 and not job.calls("requeue")
    else:
        assert (done.returncode, len(job.calls("scontrol requeue 5"))) == (75, 1)
        assert "error: python3: lacks numpy, in CONTAINER none on n1; back to the queue" in job.log()
        assert read_ending(attempt_path(job.log_dir, "0002")) is not None


def test_plan_is_written_beside_the_run_once(job: Job) -> None:
    job.answer(
        plan='{"step_s": 12.5}', during="for _ in $(seq 600); do [[ -f $LOG_DIR/plan.json ]] && break; sleep 0.1; done"
    )
    job.run(GBS="2048", TRAIN_OPTIONS="--save-minutes 5")
    assert (job.log_dir / "plan.json").read_text() == '{"step_s": 12.5}\n'
    (plan,), (attempt,) = job.calls("benchmark plan"), job.attempts()
    options = attempt.partition(" gpt3_175b ")[2].partition(" MASTER_ADDR")[0]
    assert plan.endswith(f" plan gpt3_175b {options} --json")
    assert "--nodes 2 --devices-per-node 8" in options and "--global-batch-size 2048" in options
    job.begin_again()
    job.run()
    assert len(job.calls("benchmark plan")) == 1


def test_run_whose_plan_hangs_or_fails_is_no_other(job: Job) -> None:
    job.run()  # without an answer the plan fails
    assert job.log()[-1] == "attempt 0001: the run has ended: success"
    (job.answers / "calls").unlink()
    job.begin_again()
    os.mkfifo(job.answers / "plan")  # nobody writes to it
    assert job.run().returncode == 0
    assert not (job.log_dir / "plan.json").exists()


def test_one_node_has_a_sentinel_and_a_step_on_cpus_is_not_planned(job: Job) -> None:
    job.answer(interpreter="nodes 1\ndevice cpu", nodes="n1", states="n1 allocated")
    done = job.run(BENCHMARK="llama31_8b", NODES="", SLURM_JOB_NODELIST="n1", USE_BF16="")
    assert (done.returncode, done.stderr) == (0, "")
    (attempt,) = job.attempts()
    assert (option(attempt, "--nodes"), option(attempt, "--ntasks")) == ("1", "8")
    assert "benchmark train llama31_8b --nodes 1" in attempt and "--data-folder /data --precision bf16" in attempt
    assert "--checkpoint" not in attempt
    assert job.calls("interpreter_check.py python train llama31_8b ")
    assert job.calls("interpreter_check.py options train llama31_8b --nodes 1 --devices-per-node 8 ")
    sentinels = job.calls("launch.slurm.sentinel")[0]
    assert option(sentinels, "--nodelist") == "n1" and not job.calls("benchmark plan")
