"""The benchmarks: data only."""

from dataclasses import replace

from benchmark.config.benchmark_config import Benchmark, LogKeys, OptimizerConfig, ReferenceRate, TokenFiles
from model.gpt3_config import GPT3Config
from model.llama31_config import Llama31Config

C4_SPM = TokenFiles(
    training=("c4_en_6_c4_spm_text_document", "c4_en_7_c4_spm_text_document"),
    validation="c4_en_validation_subset_c4_spm_text_document",
)
C4_LLAMA31 = TokenFiles(
    training=("c4-train.en_6_text_document",), validation="c4-validation-91205-samples.en_text_document"
)

GPT3_175B = Benchmark(
    name="gpt3_175b",
    mlperf_name="gpt3",
    model=GPT3Config(
        num_layers=96,
        hidden_size=12288,
        num_attention_heads=96,
        seq_length=2048,
        vocab_size=50257,
        padded_vocab_size=51200,
    ),
    optimizer=OptimizerConfig(lr=2.0e-5, min_lr=2.0e-6, lr_warmup_samples=265 * 1536, lr_decay_samples=108600 * 1536),
    token_files=C4_SPM,
    global_batch_size=1536,
    start_iterations=4000,
    start_global_batch_size=1536,
    train_samples=20_000_000,
    eval_interval_samples=24576,
    target_log_perplexity=2.69,
    initial_log_perplexity=(2.7767, 0.00035),
    samples_to_target=(  # means of docs/facts/mlperf_review.md 5.9; at 3072 without the typo
        (1536, 583_680),
        (2048, 577_536),
        (3072, 589_824),
        (4096, 614_400),
        (6144, 688_128),
        (8192, 792_576),
    ),
)

# The same benchmark for two CPU cores: everything that counts samples is divided by 96, the batch size too, so that an
# evaluation still comes every 16 steps.
REHEARSAL = Benchmark(
    name="rehearsal",
    mlperf_name="gpt3_rehearsal",
    model=GPT3Config(
        num_layers=4,
        hidden_size=128,
        num_attention_heads=4,
        seq_length=128,
        vocab_size=1000,
        padded_vocab_size=1024,
    ),
    optimizer=OptimizerConfig(lr=1.0e-3, min_lr=1.0e-4, lr_warmup_samples=265 * 16, lr_decay_samples=108600 * 16),
    token_files=C4_SPM,
    global_batch_size=16,
    start_iterations=4000,
    start_global_batch_size=16,
    train_samples=20_000_000 // 96,
    eval_interval_samples=24576 // 96,
    target_log_perplexity=2.44,
    initial_log_perplexity=(6.9458, 0.0001),  # 6.945792 in BF16, 6.945723 in FP32
    fp8_initial_log_perplexity=(6.9457, 0.0001),  # 6.945722 to 6.945728 by layout, on CPUs
    samples_to_target=((16, 3_413),),  # of benchmark/judging/results/rehearsal_points.json
)

LLAMA_OPTIMIZER = OptimizerConfig(
    lr=4.0e-4,
    min_lr=4.0e-5,
    lr_warmup_samples=256,
    lr_decay_samples=1_200_000 * 16,
    adam_eps=1e-5,
    decays_vectors=False,
    lr_schedule="steps",
)
LLAMA_LOG_KEYS = LogKeys(optimizer="adamw", weight_decay="opt_adamw_weight_decay", progress="samples_count")

# Sources: docs/facts/llama31_8b.md 2, 9; the rates of other batch sizes: docs/training.md.
LLAMA31_8B = Benchmark(
    name="llama31_8b",
    mlperf_name="llama31_8b",
    model=Llama31Config(
        num_layers=32,
        hidden_size=4096,
        num_attention_heads=32,
        seq_length=8192,
        vocab_size=128256,
        padded_vocab_size=128256,
        num_key_value_heads=8,
        ffn_hidden_size=14336,
    ),
    optimizer=LLAMA_OPTIMIZER,
    token_files=C4_LLAMA31,
    global_batch_size=16,
    start_iterations=0,
    start_global_batch_size=16,
    train_samples=2_560_000,  # one epoch, in whole batches of any power of two up to 4,096
    eval_interval_samples=12288,
    target_log_perplexity=3.3,
    max_steps=1_200_000,  # the cosine is shorter by the warm-up (docs/facts/llama31_8b.md 9.3)
    evaluation_sequences=1024,
    labels_last_token=True,
    shuffle_documents=True,
    order_steps=1_200_000,
    log_keys=LLAMA_LOG_KEYS,
    reference_rates=(  # docs/facts/llama31_8b.md 2
        ReferenceRate(16, 4.0e-4, 256),
        ReferenceRate(32, 8.0e-4, 4_096),
        ReferenceRate(64, 8.0e-4, 6_144),
        ReferenceRate(96, 1.0e-3, 16_348),
        ReferenceRate(128, 2.0e-3, 32_768),
    ),
    peak_over_final_rate=10,
    samples_to_target=((16, 161_109), (32, 178_859), (64, 226_645), (96, 278_640), (128, 344_747)),
)

# Judged here and not trained: docs/facts/llama31_8b.md 7.
LLAMA31_405B = Benchmark(
    name="llama31_405b",
    mlperf_name="llama31_405b",
    model=Llama31Config(
        num_layers=126,
        hidden_size=16384,
        num_attention_heads=128,
        seq_length=8192,
        vocab_size=32000,  # Mixtral's, padded to 128 x tensor parallel (docs/facts/llama31_8b.md 7)
        padded_vocab_size=32768,
        num_key_value_heads=8,
        ffn_hidden_size=53248,
    ),
    optimizer=replace(
        LLAMA_OPTIMIZER,
        lr=8.0e-5,
        min_lr=8.0e-7,
        lr_warmup_samples=8_000 * 1152,
        lr_decay_samples=1_200_000 * 1152,
    ),
    token_files=TokenFiles((), ""),
    global_batch_size=1152,
    start_iterations=0,
    start_global_batch_size=1152,
    train_samples=1_200_000 * 1152,
    eval_interval_samples=46_080,
    target_log_perplexity=5.6,
    evaluation_sequences=5760,
    log_keys=LLAMA_LOG_KEYS,
)

# The 8B for two CPU cores, with the rehearsal's tokenizer and data; samples between evaluations are divided by 96.
REHEARSAL_LLAMA = replace(
    LLAMA31_8B,
    name="rehearsal_llama",
    mlperf_name="llama31_rehearsal",
    model=Llama31Config(
        num_layers=4,
        hidden_size=128,
        num_attention_heads=8,
        seq_length=128,
        vocab_size=1000,
        padded_vocab_size=1024,
        num_key_value_heads=2,
        ffn_hidden_size=448,
    ),
    optimizer=replace(LLAMA_OPTIMIZER, lr=2.0e-3, min_lr=2.0e-4),
    token_files=C4_SPM,
    train_samples=8_192,
    order_steps=None,
    eval_interval_samples=12288 // 96,
    target_log_perplexity=2.44,
    evaluation_sequences=128,
    reference_rates=(),
    samples_to_target=((16, 1_294),),  # of benchmark/judging/results/rehearsal_llama_points.json
)

REHEARSALS = {benchmark.name: benchmark for benchmark in (REHEARSAL, REHEARSAL_LLAMA)}
BENCHMARKS = {benchmark.name: benchmark for benchmark in (GPT3_175B, REHEARSAL, LLAMA31_8B, REHEARSAL_LLAMA)}
