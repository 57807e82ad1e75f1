"""List every rule of our own, in tables by subject.

A finding is an error only if the published rules forbid it and the log itself proves it, if it is impossible, or if an
official checker says so. Every other finding is at most a question that a person would ask. Nothing that published,
accepted logs do is an error. A row gives the severity of its rule, and of the cases in which it is another. Sources are
sections of docs/facts/mlperf_review.md, which name the public ones, and their topic.
"""

from benchmark.judging.results.judged import DISCLOSURE
from benchmark.judging.results.subjects import ResultSet, SubmissionPackage
from benchmark.judging.review.findings import Rule, Run
from benchmark.judging.review.rules import (
    attachment_rules,
    clock_rules,
    copy_rules,
    evaluation_rules,
    key_rules,
    naming_rules,
    package_rules,
    set_rules,
    speed_rules,
    system_rules,
)

LOG_RULES: tuple[Rule[Run], ...] = (
    Rule(
        "record.readable", "error", "2.3; parser", key_rules.readable,
        cases={"ambiguous": "warning"},
        mend="keep other output out of the file, and write a record per line, with mllog",
        question="Is this the file as the run wrote it? Please send the original.",
    ),
    Rule(
        "record.two_runs", "error", "8.3, 3.1; one file per run", key_rules.two_runs,
        mend="give each run a file of its own, opened anew, and keep stdout out of it", explains=("",),
    ),
    Rule(
        "value.benchmark", "error", "3.2; submission_benchmark", key_rules.benchmark,
        mend="log the name as the official checker has it, and put the run into that benchmark's folder",
        explains=("",),
    ),
    Rule(
        "key.present", "error", "3.2; training_*/closed_*.yaml", key_rules.present,
        mend="log it in every run, from rank 0, the configuration before init_stop",
    ),
    Rule(
        "key.once", "error", "3.1; EXACTLY_ONE", key_rules.not_repeated,
        cases={"captured twice": "warning", "same value": "warning"},
        mend="log it from one process only; a new run starts a new file",
        question="Why is it in this file twice, and which of the two is the run's?",
    ),
    Rule(
        "value.kind", "error", "3.2", key_rules.kinds,
        cases={"rate": "warning"}, question="Was it trained with this rate?",
        mend="log a plain number, or the name as the official checker has it: others crash it",
    ),
    Rule(
        "value.fixed", "error", "3.2, 7.7; training rules, hyperparameters", key_rules.fixed,
        cases={"informative": "warning"},
        mend="train with it, and log the configured number as it is, not what a float32 tensor makes of it",
        question="Was it trained with this value, or is the key's meaning another?",
    ),
    Rule(
        "seed.logged", "error", "4.4, 7.10; seed checker", key_rules.seeds,
        cases={"as text": "warning"}, question="Is this the number that the run was seeded with?",
        mend="log the run's seed with mllog, as a plain integer, drawn from the clock or the system's randomness",
    ),
    Rule(
        "schedule.formula", "error", "7.5, 6.7; hyperparameters", key_rules.formulas,
        cases={"rounded": "note"},
        mend="use the rules' formula, rounded up",
    ),
    Rule(
        "schedule.rate", "error", "7.6, 7.7; learning rate by batch size", key_rules.rates,
        cases={"ratio": "note"},
        mend="train with that rate, let the cosine end at a tenth of it, and log the configured numbers",
    ),
    Rule(
        "batch.size", "error", "7.6, 5.5; batch size", key_rules.batch_size,
        cases={"below": "warning"},
        mend="ask the task force for reference points at that batch size, 9 weeks before the deadline",
        question="Were reference points asked for at this batch size?",
    ),
    Rule(
        "clock.order", "error", "2.2, 3.9; event order", clock_rules.order,
        mend="log events as they happen, in milliseconds of the system's clock",
    ),
    Rule(
        "clock.backwards", "warning", "7.3; timing", clock_rules.backwards,
        question="Was the clock set, or did the run go on on another node? Please send the job's own log of that time.",
    ),
    Rule(
        "init.time", "error", "3.3, 7.4; untimed initialisation", clock_rules.init_time,
        cases={"short": "warning"},
        mend="log init_start where the first process begins; start the clock when the limit is reached",
        question="Where does the first process begin, and what was done before init_start?",
    ),
    Rule(
        "init.untimed", "warning", "6.6, 6.12, 7.4; untimed initialisation", clock_rules.untimed,
        question="What was done in this time, and did any of it touch the dataset?",
    ),
    Rule(
        "cache.clear", "error", "3.2, 7.1; data state at start of run", clock_rules.cache_clear,
        cases={"llama31_8b": "warning", "llama31_405b": "warning"},
        mend="clear the caches of every node before the run, and log it then",
        question="Were the caches of every node cleared before the run, or the nodes started anew?",
    ),
    Rule(
        "eval.value", "error", "3.5; eval_accuracy", evaluation_rules.values,
        mend="log a plain float, and how far training is: steps x global_batch_size, for gpt3 x sequence length",
    ),
    Rule(
        "eval.target", "error", "3.5; eval_accuracy", evaluation_rules.meets_target,
        mend="train until the target is met; a run that never meets it does not count", explains=("stop.status",),
    ),
    Rule(
        "eval.cadence", "error", "7.8; evaluation cadence", evaluation_rules.cadence,
        cases={
            "llama31_8b": "warning", "llama31_405b": "warning",
            "llama31_8b early": "note", "llama31_405b early": "note",
        },
        mend="evaluate at the steps that are expected here, and log how far training is",
        question="Why was it not evaluated at the steps that the rules ask for?",
    ),
    Rule(
        "eval.samples", "error", "7.8, 6.4; full validation subset", evaluation_rules.eval_samples,
        cases={"gpt3": "warning"},
        mend="evaluate the whole subset, and log its documents or tokens",
        question="What was evaluated, and in which unit is this number?",
    ),
    Rule(
        "eval.time", "warning", "6.9, 7.8; evaluation", speed_rules.hasty_evaluations,
        question="Was the whole validation subset evaluated each time? Please point to the code.",
    ),
    Rule(
        "stop.status", "error", "3.3; run_stop", evaluation_rules.stop_status,
        cases={"other word": "warning", "target met": "warning"},
        mend="log with run_stop how the run ended", question="How did this run end, and why does it count as failed?",
    ),
    Rule(
        "stop.target", "error", "7.3, 6.5; timing", clock_rules.stopped_before_target,
        cases={"later evaluations": "warning"},
        mend="stop the clock when the target is known to be met, at the first evaluation that meets it",
        question="Why did the run go on after it had met the target?",
    ),
    Rule(
        "stop.samples", "warning", "6.4; train_samples", evaluation_rules.train_samples,
        question="How many tokens was the model trained on?",
    ),
    Rule(
        "curve.envelope", "warning", "6.9, 7.2; accuracy curves", evaluation_rules.envelope,
        question="From which checkpoint, on which data, was this trained? Please send loss curves.",
    ),
    Rule(
        "curve.sudden", "warning", "6.5; accuracy curves", evaluation_rules.sudden,
        question="Which weights were evaluated here, on what? Please send the value as the job printed it.",
    ),
    Rule(
        "speed.block", "warning", "6.9, 7.3; timing", speed_rules.fast_block,
        question="Which steps lie between these two evaluations, and was the log changed here?",
    ),
    Rule(
        "speed.steps", "warning", "6.11, 7.3; statistics of steps", speed_rules.steps_and_blocks,
        question="Are these the steps of this run, as the code timed them? Please send the job's own output.",
    ),
)  # fmt: skip

SET_RULES: tuple[Rule[ResultSet], ...] = (
    Rule(
        "runs.settings", "error", "7.9; one set of runs", set_rules.same_settings,
        cases={
            "submission_org": "warning", "submission_platform": "warning", "gradient_accumulation_steps": "warning",
            **dict.fromkeys(DISCLOSURE, "warning"),
        },
        mend="put runs of one configuration together; others belong to another system",
        question="Were all runs made on one system, with one configuration?",
    ),
    Rule(
        "runs.seeds", "error", "7.10; seeds", set_rules.seeds,
        cases={"in sequence": "note"},
        mend="draw every run's seed anew, and run again",
    ),
    Rule(
        "runs.copy", "error", "6.8, 7.9; each file a run of its own", copy_rules.in_system,
        mend="submit different runs", explains=("runs.seeds",),
    ),
    Rule(
        "runs.failed", "error", "4.3, 7.9; runs and scoring", set_rules.failed,
        cases={"one": "warning"},
        mend="a result has at most one failed run, which counts as the slowest",
        question="Why did this run fail, and which others were made?",
    ),
    Rule(
        "runs.lost_time", "warning", "6.6, 7.3; no pausing", speed_rules.lost_time,
        question="What happened then? Did the clock run on, and did training go on with the same data?",
    ),
    Rule(
        "speed.peak", "error", "6.9, 7.2; formats of numbers", speed_rules.peak,
        cases={
            "unknown accelerator": "note", "unknown system": "warning", "slow": "warning", "disclosed": "warning",
            "unsourced peak": "warning",
        },
        mend="correct times, tokens or the number of devices: they do not fit each other",
        question="How many devices of which kind made this result?",
    ),
    Rule(
        "runs.layout", "warning", "3.2, 7.6; batch size and devices", set_rules.layout,
        question="On how many devices did this run train, in which layout?",
    ),
    Rule(
        "named.counts", "warning", "4.1, 4.5, 6.9; one system", naming_rules.counts,
        question="How many nodes and devices made these runs?",
    ),
    Rule(
        "named.accelerator", "warning", "4.5, 6.9; one system", naming_rules.accelerators,
        question="Which accelerator made these runs?",
    ),
    Rule(
        "named.submitter", "warning", "4.5, 7.9; one submitter", naming_rules.submitter,
        question="Whose runs are these?",
    ),
    Rule(
        "named.placeholder", "warning", "3.2, 6.9; names", naming_rules.placeholders,
        question="Who ran this, on which system? The log has a template's word for it.",
    ),
    Rule(
        "published.copy", "error", "6.8, 7.9; each file a run of its own", copy_rules.published,
        cases={"itself": "note"},
        mend="submit runs of your own",
    ),
    Rule(
        "rcp.test", "error", "5.4, 5.6, 5.10; convergence test", set_rules.convergence,
        cases={"only by void points": "warning", "void points": "note", "scaled": "note"},
        mend="if it converges faster than the reference can, find a difference in model, data, schedule or evaluation",
        question="The reference's own data are wrong here: how does the result compare with the points beside them?",
    ),
    Rule(
        "power.energy", "error", "4.2, 6.9; energy", attachment_rules.energy,
        cases={
            "unread": "warning", "nodes": "warning", "power": "warning", "unmeasured": "warning",
            "efficiency": "warning",
        },
        mend="give each node's readings in watts from run_start to run_stop, as the meter's program wrote them",
        question="How was this measured, on which nodes, with which meters? Please send their own records.",
    ),
    Rule(
        "evidence.chain", "error", "7.3, 7.9; runs and scoring", attachment_rules.evidence,
        cases={"unread": "note", "extent": "note", "missing": "warning", "cut": "warning", "edited": "warning"},
        mend="give log and evidence as the run wrote them",
        question="Which is the run's own? Please send log, evidence, configuration and inputs as the run wrote them.",
    ),
    Rule(
        "system.readable", "error", "4.5; systems", system_rules.readable,
        cases={"repeated": "warning"},
        mend="write it anew as UTF-8 JSON, every field once", question="Which of the two values is right?",
    ),
    Rule(
        "system.fields", "error", "4.5, 4.6, 4.7, 4.8; mandatory keys", system_rules.fields,
        mend="give every field, as a string, letter by letter: another type kills the checkers, and another spelling "
        "of the division silently turns off two of them",
    ),
    Rule(
        "system.filled_in", "warning", "4.5; submission rules, system description", system_rules.filled_in,
        question="What is the right entry?",
    ),
    Rule(
        "system.memory", "warning", "4.5; system description", system_rules.memory,
        question="Which model is it? Its maker sells it with another memory.",
    ),
)  # fmt: skip

PACKAGE_RULES: tuple[Rule[SubmissionPackage], ...] = (
    Rule(
        "package.layout", "error", "1.4, 4.1, 4.2, 4.3; layout", package_rules.layout,
        cases={"not reviewed": "note"},
        mend="give systems/SYSTEM.json and results/SYSTEM/BENCHMARK/ with exactly as many result_*.txt as expected",
    ),
    Rule(
        "package.rehearsal", "error", "1.4, 4.2; layout", package_rules.rehearsed,
        mend="hand in runs of the benchmark itself; the runs of a rehearsal pass or fail by themselves: review run_?",
    ),
    Rule(
        "package.code", "warning", "7.12; submission content", package_rules.code,
        question="Where is the code that made these results?",
    ),
    Rule(
        "package.twins", "warning", "4.5, 7.9; one set of runs for a system", package_rules.twins,
        question="Is this one system, handed in twice? What tells the two apart?",
    ),
    Rule(
        "package.stray_run", "warning", "4.2, 7.9, 7.12; runs and scoring", package_rules.stray_runs,
        question="What is this run? How were those that count chosen?",
    ),
    Rule(
        "package.bypass", "error", "4.9, 7.11; bypass", package_rules.bypass,
        cases={"another benchmark": "note"},
        mend="remove it: it lets the upload through, not the result",
    ),
    Rule(
        "package.scaling", "error", "4.15, 5.6; scaling.json", package_rules.scaling,
        cases={"missing": "warning", "worse": "warning"},
        mend="let the package checker write scaling.json",
        question="Which decision of the committee set this factor?",
    ),
    Rule(
        "package.seeds", "warning", "7.10; seeds", naming_rules.seeds_across,
        question="Where do the seeds come from? Please point to the code that draws them.",
    ),
    Rule("package.letters", "warning", "4.1, 4.5; names", naming_rules.unseen_letters, question="Which name is meant?"),
    Rule(
        "package.files", "error", "4.1, 4.2, 4.12; repo_checker", package_rules.files,
        cases={"code of round 3": "note"},
        mend="put files themselves there, under names of letters, digits, '.', '_', '+' and '-': official tools refuse "
        "others, take them for a pattern, or pass over them",
    ),
    Rule(
        "package.copy", "error", "6.8, 7.9; each file a run of its own", copy_rules.in_package,
        mend="submit a run for one system only",
    ),
    Rule(
        "package.division", "error", "4.8; division", package_rules.same_division,
        mend="use one division in log and description",
    ),
)  # fmt: skip

ROUND_RULES: tuple[Rule[copy_rules.RoundRuns], ...] = (
    Rule("round.copy", "error", "6.8, 7.9; each file a run of its own", copy_rules.in_round, mend="submit a run once"),
)
"""Rules about the runs of a package and those of the other packages of its folder."""
