"""What the job does, with stand-ins for Slurm's commands and the run's Python: attempts, nodes, queue, signals."""

import os

import pytest

from tests.benchmark.launch.slurm.stand_in_job import Job, option


def test_a_run_that_ends_by_itself(job: Job) -> None:
    done = job.run()
    assert done.returncode == 0, done.stderr
    (attempt,) = job.attempts()
    assert (option(attempt, "--nodes"), option(attempt, "--ntasks"), option(attempt, "--nodelist")) == (
        "2",
        "16",
        "n1,n2",
    )
    assert (option(attempt, "ATTEMPT"), option(attempt, "LAUNCH_ID")) == ("0001", "5")
    assert option(attempt, "MASTER_ADDR") == "address-of-n1"
    assert "--gpus" not in attempt
    assert "warning: the nodes have GPUs that the job did not get" in done.stdout
    assert option(attempt, "SUBMITTED_S").isdigit()
    assert not job.calls("requeue")
    assert "2 of 3 nodes are used, 1 are spare" in done.stdout
    assert job.log()[-2:] == ["attempt 0001: n1 n2", "attempt 0001: the run has ended: success"]


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


def test_nodes_that_are_down_or_silent_are_left_out(job: Job) -> None:
    job.answer(statuses="1\n0", during='echo -e "n1 allocated\\nn2 down*\\nn3 allocated" >"$answers/states"')
    job.run()
    assert option(job.attempts()[1], "--nodelist") == "n1,n3"
    assert any(line.startswith("attempt 0001: node n2 is lost: ") for line in job.log())


def test_a_node_that_answers_nothing_counts_before_slurm_notices(job: Job) -> None:
    job.answer(statuses="1\n0", silent="n2")
    job.run()
    assert option(job.attempts()[1], "--nodelist") == "n1,n3"


def test_too_few_nodes_go_back_to_the_queue(job: Job) -> None:
    job.answer(statuses="1", during='echo "n1,n3" >"$answers/nodes"')
    done = job.run(NODES="3")
    assert len(job.attempts()) == 1
    assert job.calls("scontrol requeue 5")
    assert done.returncode == 75


def test_a_run_that_is_given_up_is_never_requeued(job: Job) -> None:
    job.answer(statuses="2", during="incident input n1", waiting="77")
    done = job.run(CHAIN="1")
    assert done.returncode == 2
    assert len(job.attempts()) == 1
    assert not job.calls("requeue")
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


def test_a_waiting_job_that_was_cancelled_is_not_relied_on(job: Job) -> None:
    job.answer(statuses="75", waiting="77", during='rm "$answers/waiting"')
    assert job.run(CHAIN="1").returncode == 75
    assert not job.calls("sbatch")
    assert job.calls("scontrol requeue 5")
    assert "the run goes on when job 5 has come through the queue again" in job.log()


def test_one_job_waits_at_a_time(job: Job) -> None:
    job.answer(waiting="66")
    done = job.run(CHAIN="1")
    assert not job.calls("sbatch")
    assert job.calls("scancel --state=PENDING 66")  # the run has ended
    assert done.returncode == 0


def test_no_job_waits_unless_asked_for(job: Job) -> None:
    job.run()
    assert not job.calls("sbatch") and not job.calls("JobName")


def test_exit_file_ends_run_and_chain(job: Job) -> None:
    job.log_dir.mkdir()
    (job.log_dir / "exit").touch()
    job.answer(waiting="77")
    done = job.run(CHAIN="1")
    assert done.returncode == 75
    assert not job.attempts()
    assert job.calls("scancel --state=PENDING 77")
    assert not (job.log_dir / "exit").exists()


def test_a_second_job_in_the_folder_is_refused_in_one_line(job: Job) -> None:
    job.log_dir.mkdir()
    (job.log_dir / "launcher").write_text("job 4\n")
    job.answer(running="RUNNING")
    done = job.run()
    assert done.returncode == 2
    assert job.log() == [f"error: {job.log_dir}: job 4 runs there; end it first, or choose another folder"]
    assert not job.attempts() and not (job.log_dir / "attempts").exists() and not (job.log_dir / "snapshot").exists()
    job.answer(running="")  # it has ended
    assert job.run().returncode == 0


def test_a_job_into_a_finished_run_is_refused_in_one_line(job: Job) -> None:
    assert job.run().returncode == 0
    done = job.run()
    assert (done.returncode, len(job.attempts())) == (2, 1)
    assert job.log()[-1] == f"error: {job.log_dir}: holds a finished run (success); choose another folder"
    assert len(list((job.log_dir / "attempts").iterdir())) == 1


@pytest.mark.parametrize(
    ("left", "starts"),
    [
        ("14:59", False),
        ("15:01", True),
        ("2-03:00:00", True),
        ("UNLIMITED", True),
        ("NOT_SET", True),
        ("INVALID", False),
    ],
)
def test_a_job_without_time_is_refused(job: Job, left: str, starts: bool) -> None:
    job.answer(left=left)
    done = job.run()
    assert done.returncode == (0 if starts else 2), done.stderr
    assert len(job.attempts()) == starts
    assert ("within EXIT_MARGIN_MINUTES=15" in done.stdout) != starts


def test_a_failure_near_the_end_of_the_time_goes_back_to_the_queue(job: Job) -> None:
    job.answer(left="2:00:00", statuses="70", during='echo 5:00 >"$answers/left"')
    assert job.run().returncode == 75
    assert len(job.attempts()) == 1
    assert job.calls("scontrol requeue")


def test_sigusr2_reaches_the_processes_and_the_job_is_requeued(job: Job) -> None:
    """Also where they fail instead of saving."""
    during = "trap 'touch \"$answers/heard\"; exit 70' USR2; kill -USR2 $PPID; for _ in $(seq 100); do sleep 0.1; done"
    job.answer(statuses="70", during=during)
    done = job.run()
    assert (job.answers / "heard").exists()
    assert len(job.attempts()) == 1
    assert job.calls("scontrol requeue")
    assert done.returncode == 75


def test_slurms_early_warning_waits_for_the_margin(job: Job) -> None:
    """--signal comes 15 minutes before the end; EXIT_MARGIN_MINUTES=5 trains ten minutes more."""
    during = "trap 'touch \"$answers/heard\"' USR2; kill -USR2 $PPID; sleep 0.5"
    job.answer(left="15:30", during=during)
    assert job.run(EXIT_MARGIN_MINUTES="5").returncode == 0
    assert not (job.answers / "heard").exists()


def test_sigterm_ends_the_job_for_good(job: Job) -> None:
    during = "trap 'exit 75' TERM; kill -TERM $PPID; for _ in $(seq 100); do sleep 0.1; done"
    job.answer(statuses="75", during=during)
    done = job.run()
    assert done.returncode == 75
    assert not job.calls("requeue")
    assert "ended by SIGTERM" in done.stdout


def test_container_runs_every_python(job: Job) -> None:
    job.answer(during='until grep "benchmark plan" "$answers/calls"; do sleep 0.1; done')
    done = job.run("image")
    for phrase in ("interpreter_check", "environment_snapshot", "benchmark plan", "benchmark train"):
        (call,) = job.calls(phrase)
        assert call.startswith("srun ") and "--container-name gpt3_5" in call
    assert done.returncode == 0


def test_interpreter_that_cannot_run_it_is_one_line(job: Job) -> None:
    (job.folder / "bin" / "python3").unlink()
    (job.folder / "bin" / "python3").write_text(
        '#!/bin/sh\ncase $* in *benchmark.launch*) exec $REAL_PYTHON "$@";; '
        '*dependencies*) exit 0;; *check*) echo "error: python3 3.8.10: too old"; exit 2;; esac\n'
    )
    (job.folder / "bin" / "python3").chmod(0o755)
    done = job.run()
    assert done.returncode == 2
    assert job.log()[-1] == "error: python3 3.8.10: too old, in CONTAINER none"
    assert not job.calls("srun")


def test_up_to_an_eighth_more_nodes_than_the_system_s_are_spare(job: Job) -> None:
    names = ",".join(f"n{number}" for number in range(9))
    job.answer(interpreter="nodes 8", nodes=names, states="")
    job.run(NODES="", SLURM_JOB_NODELIST=names)
    assert option(job.attempts()[0], "--nodes") == "8"


def test_plan_is_written_beside_the_run_once(job: Job) -> None:
    job.answer(
        plan='{"step_s": 12.5}', during="for _ in $(seq 200); do [[ -f $LOG_DIR/plan.json ]] && break; sleep 0.1; done"
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
    (job.answers / "plan").write_text("late")  # ends it


@pytest.mark.parametrize("benchmark", ["rehearsal", "rehearsal_llama"])
def test_rehearsals_are_not_planned(job: Job, benchmark: str) -> None:
    job.run(BENCHMARK=benchmark, SYSTEM="cpu_p2")
    assert job.attempts() and not job.calls("benchmark plan")


def test_llama_runs_on_one_node_without_a_checkpoint(job: Job) -> None:
    job.answer(interpreter="nodes 1", nodes="n1", states="n1 allocated")
    done = job.run(BENCHMARK="llama31_8b", NODES="", SLURM_JOB_NODELIST="n1", USE_BF16="")
    assert (done.returncode, done.stderr) == (0, "")
    (attempt,) = job.attempts()
    assert (option(attempt, "--nodes"), option(attempt, "--ntasks")) == ("1", "8")
    assert "benchmark train llama31_8b --nodes 1" in attempt and "--data-folder /data --precision bf16" in attempt
    assert "--checkpoint" not in attempt
    assert job.calls("interpreter_check.py train llama31_8b ")
