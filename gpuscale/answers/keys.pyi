# Written by tools/answer_keys.py.
from collections.abc import Callable
from typing import Any, Literal, ParamSpec, overload

from gpuscale.answers.answer import Answer
from gpuscale.answers.calibrate import Calibrate
from gpuscale.answers.compare import Compare
from gpuscale.answers.diagnose import Diagnose
from gpuscale.answers.explain import Explain
from gpuscale.answers.parts.asked import Collective, MatmulTime, Model, Network
from gpuscale.answers.parts.roofline import Roofline
from gpuscale.answers.serve import Serve
from gpuscale.answers.study import Study
from gpuscale.answers.training.asked import Checkpoint, Memory, Timeline
from gpuscale.answers.training.plan import Plan
from gpuscale.answers.validate import Validate

P = ParamSpec("P")

class CalibrateAnswer(Answer):
    @overload
    def __getitem__(self, key: Literal["columns",]) -> list[str]: ...
    @overload
    def __getitem__(self, key: Literal["fits",]) -> list[dict[str, Any]]: ...
    @overload
    def __getitem__(self, key: Literal["overlay_toml",]) -> str: ...
    @overload
    def __getitem__(self, key: Literal["saved",]) -> str | None: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...

class CheckpointAnswer(Answer):
    @overload
    def __getitem__(self, key: Literal["bill", "outlook", "parts", "save"]) -> dict[str, Any]: ...
    @overload
    def __getitem__(
        self,
        key: Literal[
            "bytes_per_day",
            "bytes_per_param",
            "checkpoint_bytes",
            "daly_s",
            "exact_s",
            "first_order_frac",
            "interval_s",
            "lost_frac",
            "mtbf_s",
            "n_interruptions",
            "n_interruptions_by_clock",
            "n_params",
            "n_saves",
            "saving_frac",
            "store_read_bytes_per_s",
            "store_write_bytes_per_s",
            "trainable_params",
            "young_s",
        ],
    ) -> float: ...
    @overload
    def __getitem__(self, key: Literal["n_gpus", "n_nodes", "spares"]) -> int: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...

class CollectiveAnswer(Answer):
    @overload
    def __getitem__(
        self,
        key: Literal[
            "algbw_bytes_per_s",
            "approximate_s",
            "array_bytes",
            "bandwidth_s",
            "busbw_bytes_per_s",
            "latency_s",
            "nccl_size_bytes",
            "time_s",
        ],
    ) -> float: ...
    @overload
    def __getitem__(self, key: Literal["binding_level", "op"]) -> str: ...
    @overload
    def __getitem__(self, key: Literal["expected", "switch_bytes"]) -> dict[str, Any] | None: ...
    @overload
    def __getitem__(self, key: Literal["levels", "rows"]) -> list[dict[str, Any]]: ...
    @overload
    def __getitem__(self, key: Literal["n_gpus", "n_ranks", "steps"]) -> int: ...
    @overload
    def __getitem__(self, key: Literal["ring_s",]) -> float | None: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...

class CompareAnswer(Answer):
    @overload
    def __getitem__(self, key: Literal["because", "inputs_changed"]) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: Literal["changes",]) -> list[Any]: ...
    @overload
    def __getitem__(self, key: Literal["command",]) -> str | None: ...
    @overload
    def __getitem__(self, key: Literal["differences", "rows"]) -> list[dict[str, Any]]: ...
    @overload
    def __getitem__(self, key: Literal["fail_over_frac",]) -> float | None: ...
    @overload
    def __getitem__(self, key: Literal["kind",]) -> str: ...
    @overload
    def __getitem__(self, key: Literal["n_over",]) -> int: ...
    @overload
    def __getitem__(self, key: Literal["names",]) -> list[str]: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...

class DiagnoseAnswer(Answer):
    @overload
    def __getitem__(self, key: Literal["asks", "headline", "kind", "verdict"]) -> str: ...
    @overload
    def __getitem__(self, key: Literal["causes", "events", "logs"]) -> list[dict[str, Any]]: ...
    @overload
    def __getitem__(
        self, key: Literal["next_test", "out_of_memory", "predicted"]
    ) -> dict[str, Any] | None: ...
    @overload
    def __getitem__(self, key: Literal["probability",]) -> float: ...
    @overload
    def __getitem__(self, key: Literal["ratio",]) -> float | None: ...
    @overload
    def __getitem__(self, key: Literal["symptoms", "together"]) -> list[str]: ...
    @overload
    def __getitem__(self, key: Literal["verdicts",]) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...

class ExplainAnswer(Answer):
    @overload
    def __getitem__(self, key: Literal["also", "references", "see"]) -> list[str]: ...
    @overload
    def __getitem__(
        self,
        key: Literal[
            "command",
            "core",
            "example",
            "formula",
            "limits",
            "name",
            "text",
            "title",
            "topic",
            "unit",
        ],
    ) -> str: ...
    @overload
    def __getitem__(self, key: Literal["inputs",]) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: Literal["terms",]) -> list[dict[str, Any]]: ...
    @overload
    def __getitem__(self, key: Literal["value",]) -> float: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...

class MatmulTimeAnswer(Answer):
    @overload
    def __getitem__(self, key: Literal["bound", "compute_dtype", "kind"]) -> str: ...
    @overload
    def __getitem__(
        self,
        key: Literal[
            "bytes",
            "bytes_per_s",
            "compute_s",
            "flop",
            "intensity_flop_per_byte",
            "memory_s",
            "ridge_flop_per_byte",
            "time_s",
        ],
    ) -> float: ...
    @overload
    def __getitem__(
        self, key: Literal["critical_m", "critical_m_rule", "flop_per_s", "time_at_efficiency_s"]
    ) -> float | None: ...
    @overload
    def __getitem__(self, key: Literal["expected",]) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: Literal["smallest_compute_bound_m",]) -> int | None: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...

class MemoryAnswer(Answer):
    @overload
    def __getitem__(
        self,
        key: Literal[
            "against",
            "estimate",
            "expected",
            "ideal",
            "layout",
            "peaks",
            "per_gpu",
            "said_by",
            "states",
            "times",
        ],
    ) -> dict[str, Any]: ...
    @overload
    def __getitem__(
        self,
        key: Literal[
            "all_gpus_bytes",
            "all_weights_bytes",
            "allocated_bytes",
            "bytes_per_param",
            "capacity_bytes",
            "context_tokens",
            "fits_probability",
            "hbm_bytes",
            "headroom_bytes",
            "host_bytes_per_node",
            "ideal_total_bytes",
            "kv_bytes_per_sequence",
            "kv_bytes_per_token",
            "memory_interval_factor_80",
            "nvidia_smi_bytes",
            "params",
            "params_per_gpu",
            "peak_bytes",
            "peak_high_bytes",
            "peak_low_bytes",
            "reserved_bytes",
            "samples_per_s",
            "step_high_s",
            "step_low_s",
            "step_s",
            "tokens_per_s",
            "trained_params",
        ],
    ) -> float: ...
    @overload
    def __getitem__(
        self, key: Literal["beyond", "bound", "decides", "maturity", "recipe"]
    ) -> str: ...
    @overload
    def __getitem__(
        self, key: Literal["bill", "enough", "fewest", "fewest_expected"]
    ) -> dict[str, Any] | None: ...
    @overload
    def __getitem__(
        self, key: Literal["cards", "remedies", "splits", "stages"]
    ) -> list[dict[str, Any]]: ...
    @overload
    def __getitem__(self, key: Literal["cost_usd", "run_s"]) -> float | None: ...
    @overload
    def __getitem__(self, key: Literal["fewest_gpus", "steps"]) -> int | None: ...
    @overload
    def __getitem__(self, key: Literal["fits",]) -> bool: ...
    @overload
    def __getitem__(
        self,
        key: Literal[
            "largest_micro_batch",
            "longest_seq_len",
            "micro_batch_size",
            "n_gpus",
            "n_gpus_to_hold",
            "n_nodes_to_hold",
            "n_shards",
            "peak_stage",
            "seq_len",
            "zero_stage",
        ],
    ) -> int: ...
    @overload
    def __getitem__(self, key: Literal["taken",]) -> list[str]: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...

class ModelAnswer(Answer):
    @overload
    def __getitem__(
        self,
        key: Literal[
            "active_params",
            "active_params_excl_embedding",
            "attention_flop_per_token",
            "embedding_params",
            "extra_params",
            "ffn_params",
            "forward_flop_per_token",
            "head_params",
            "kv_bytes_per_token",
            "kv_cache_bytes",
            "mixer_params",
            "mtp_params",
            "norm_params",
            "params",
            "six_p_flop_per_token",
            "state_bytes",
            "training_flop_per_token",
            "vision_params",
        ],
    ) -> float: ...
    @overload
    def __getitem__(self, key: Literal["groups",]) -> list[dict[str, Any]]: ...
    @overload
    def __getitem__(self, key: Literal["hidden_size", "n_layers", "vocab_size"]) -> int: ...
    @overload
    def __getitem__(self, key: Literal["layers", "name", "toml"]) -> str: ...
    @overload
    def __getitem__(self, key: Literal["notes",]) -> str | None: ...
    @overload
    def __getitem__(
        self, key: Literal["published_active_params", "published_params", "weight_bits"]
    ) -> float | None: ...
    @overload
    def __getitem__(self, key: Literal["sources",]) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...

class NetworkAnswer(Answer):
    @overload
    def __getitem__(
        self, key: Literal["all_reduce", "bill", "design", "scaleup"]
    ) -> dict[str, Any] | None: ...
    @overload
    def __getitem__(self, key: Literal["cables", "levels", "losses"]) -> list[dict[str, Any]]: ...
    @overload
    def __getitem__(self, key: Literal["collective_bytes_per_s", "failure_s"]) -> float | None: ...
    @overload
    def __getitem__(
        self,
        key: Literal[
            "n_cables",
            "n_core_switches",
            "n_leaf_switches",
            "n_links",
            "n_scaleup_switches",
            "n_spine_switches",
            "n_switches",
            "n_switches_by_ports",
        ],
    ) -> int | None: ...
    @overload
    def __getitem__(self, key: Literal["n_gpus", "n_nodes"]) -> int: ...
    @overload
    def __getitem__(self, key: Literal["ok",]) -> bool: ...
    @overload
    def __getitem__(self, key: Literal["report",]) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: Literal["slowest_level",]) -> str: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...

class PlanAnswer(Answer):
    @overload
    def __getitem__(
        self,
        key: Literal[
            "against",
            "alternatives",
            "causes",
            "events",
            "limits",
            "logs",
            "options",
            "remedies",
            "rows",
            "sensitivity",
            "splits",
        ],
    ) -> list[dict[str, Any]]: ...
    @overload
    def __getitem__(
        self,
        key: Literal[
            "as_it_comes",
            "bill",
            "bolder",
            "checkpoint",
            "chosen",
            "next_test",
            "out_of_memory",
            "outlook",
            "passed_over",
            "predicted",
            "run",
            "tuned",
        ],
    ) -> dict[str, Any] | None: ...
    @overload
    def __getitem__(
        self,
        key: Literal[
            "asked_batch_tokens",
            "batch_tokens",
            "capacity_bytes",
            "fits_probability",
            "hbm_bytes",
            "headroom_bytes",
            "hfu",
            "memory_interval_factor_80",
            "mfu",
            "model_flop_per_s_per_gpu",
            "offload_s",
            "peak_bytes",
            "peak_high_bytes",
            "peak_low_bytes",
            "probability",
            "roofline_s",
            "samples_per_s",
            "step_high_s",
            "step_low_s",
            "step_s",
            "tokens",
            "tokens_per_dp_rank",
            "tokens_per_gpu",
            "tokens_per_s",
            "tokens_per_s_per_gpu",
            "unpack_s",
        ],
    ) -> float: ...
    @overload
    def __getitem__(
        self,
        key: Literal[
            "asks",
            "beyond",
            "bound",
            "decides",
            "family",
            "headline",
            "job_toml",
            "kind",
            "maturity",
            "verdict",
        ],
    ) -> str: ...
    @overload
    def __getitem__(
        self,
        key: Literal[
            "breakdown",
            "counts",
            "estimate",
            "expected",
            "job",
            "layout",
            "memory",
            "said_by",
            "step",
            "verdicts",
        ],
    ) -> dict[str, Any]: ...
    @overload
    def __getitem__(
        self,
        key: Literal[
            "cost_usd", "passed_over_fits_probability", "ratio", "run_s", "tuned_probability"
        ],
    ) -> float | None: ...
    @overload
    def __getitem__(self, key: Literal["fewest_gpus", "steps"]) -> int | None: ...
    @overload
    def __getitem__(self, key: Literal["fits", "meets"]) -> bool: ...
    @overload
    def __getitem__(self, key: Literal["n_gpus",]) -> int: ...
    @overload
    def __getitem__(
        self, key: Literal["slow_families", "symptoms", "taken", "together"]
    ) -> list[str]: ...
    @overload
    def __getitem__(self, key: Literal["stage_layers",]) -> list[int]: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...

class RooflineAnswer(Answer):
    @overload
    def __getitem__(self, key: Literal["exceeded",]) -> list[str]: ...
    @overload
    def __getitem__(
        self, key: Literal["flop_per_s", "tokens_per_dp_rank", "tokens_per_gpu"]
    ) -> float: ...
    @overload
    def __getitem__(self, key: Literal["rows",]) -> list[dict[str, Any]]: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...

class ServeAnswer(Answer):
    @overload
    def __getitem__(
        self,
        key: Literal[
            "alone_tpot_s",
            "alone_ttft_s",
            "at_most_per_s",
            "end_to_end_mean_s",
            "grows_times",
            "j_per_output_token",
            "output_tokens_per_s",
            "rate_per_s",
            "requests_per_s",
            "time_s",
            "tokens_per_s_per_gpu",
            "tokens_per_s_per_user",
            "total_tokens_per_s",
            "tpot_error_frac",
            "tpot_high_s",
            "tpot_low_s",
            "tpot_mean_s",
            "tpot_p50_s",
            "tpot_p95_s",
            "tpot_p99_s",
            "ttft_error_frac",
            "ttft_high_s",
            "ttft_low_s",
            "ttft_mean_s",
            "ttft_p50_s",
            "ttft_p95_s",
            "ttft_p99_s",
            "usd_fixed",
            "usd_per_gpu_hour",
            "usd_per_hour",
            "usd_per_million_output_tokens",
            "usd_per_million_tokens",
            "usd_scaled",
        ],
    ) -> float | None: ...
    @overload
    def __getitem__(
        self,
        key: Literal[
            "as_it_comes",
            "benchmark",
            "binding",
            "decides",
            "engine",
            "engine_settings",
            "kv",
            "label",
            "tighter",
            "weights",
        ],
    ) -> str: ...
    @overload
    def __getitem__(self, key: Literal["bill", "layout"]) -> dict[str, Any] | None: ...
    @overload
    def __getitem__(
        self,
        key: Literal[
            "capacity_bytes",
            "duration_s",
            "gpu_hours_fixed",
            "gpu_hours_scaled",
            "kv_tokens",
            "late_frac",
            "mean_rate_per_s",
            "missing_bytes",
            "peak_bytes",
            "peak_rate_per_s",
            "prefix_hit_frac",
            "replicas_mean",
            "sequences_with_room",
            "window_s",
        ],
    ) -> float: ...
    @overload
    def __getitem__(self, key: Literal["fewest_gpus",]) -> int | None: ...
    @overload
    def __getitem__(self, key: Literal["fits", "meets"]) -> bool: ...
    @overload
    def __getitem__(
        self, key: Literal["frontier", "models", "points", "pools", "rows", "windows"]
    ) -> list[dict[str, Any]]: ...
    @overload
    def __getitem__(
        self,
        key: Literal[
            "gather_passes",
            "given_gpus",
            "n_gpus",
            "n_gpus_apart",
            "n_preempted",
            "n_refused",
            "n_requests",
            "n_starts",
            "replicas",
            "replicas_peak",
        ],
    ) -> int: ...
    @overload
    def __getitem__(self, key: Literal["launch", "no_room", "taken"]) -> list[str]: ...
    @overload
    def __getitem__(self, key: Literal["memory", "said_by", "tpot", "ttft"]) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: Literal["smallest_format",]) -> str | None: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...

class StudyAnswer(Answer):
    @overload
    def __getitem__(self, key: Literal["best",]) -> list[dict[str, Any]]: ...
    @overload
    def __getitem__(self, key: Literal["file", "question", "rank"]) -> str: ...
    @overload
    def __getitem__(
        self, key: Literal["n_answered", "n_errors", "n_jobs", "n_kept", "n_no"]
    ) -> int: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...

class TimelineAnswer(Answer):
    @overload
    def __getitem__(
        self,
        key: Literal[
            "bubble_frac",
            "capacity_bytes",
            "memory_interval_factor_80",
            "pass_time_scale",
            "peak_bytes",
            "schedule_s",
            "step_high_s",
            "step_low_s",
            "step_s",
            "transfer_wait_s",
            "window_s",
        ],
    ) -> float: ...
    @overload
    def __getitem__(self, key: Literal["fits",]) -> bool: ...
    @overload
    def __getitem__(self, key: Literal["layout", "said_by"]) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: Literal["n_drawn_micro_batches", "n_micro_batches"]) -> int: ...
    @overload
    def __getitem__(self, key: Literal["schedule",]) -> str: ...
    @overload
    def __getitem__(self, key: Literal["stages",]) -> list[dict[str, Any]]: ...
    @overload
    def __getitem__(self, key: Literal["taken",]) -> list[str]: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...

class ValidateAnswer(Answer):
    @overload
    def __getitem__(self, key: Literal["sections",]) -> list[dict[str, Any]]: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...

@overload
def asks(question: Callable[P, Calibrate]) -> Callable[P, CalibrateAnswer]: ...
@overload
def asks(question: Callable[P, Checkpoint]) -> Callable[P, CheckpointAnswer]: ...
@overload
def asks(question: Callable[P, Collective]) -> Callable[P, CollectiveAnswer]: ...
@overload
def asks(question: Callable[P, Compare]) -> Callable[P, CompareAnswer]: ...
@overload
def asks(question: Callable[P, Diagnose]) -> Callable[P, DiagnoseAnswer]: ...
@overload
def asks(question: Callable[P, Explain]) -> Callable[P, ExplainAnswer]: ...
@overload
def asks(question: Callable[P, MatmulTime]) -> Callable[P, MatmulTimeAnswer]: ...
@overload
def asks(question: Callable[P, Memory]) -> Callable[P, MemoryAnswer]: ...
@overload
def asks(question: Callable[P, Model]) -> Callable[P, ModelAnswer]: ...
@overload
def asks(question: Callable[P, Network]) -> Callable[P, NetworkAnswer]: ...
@overload
def asks(question: Callable[P, Plan]) -> Callable[P, PlanAnswer]: ...
@overload
def asks(question: Callable[P, Roofline]) -> Callable[P, RooflineAnswer]: ...
@overload
def asks(question: Callable[P, Serve]) -> Callable[P, ServeAnswer]: ...
@overload
def asks(question: Callable[P, Study]) -> Callable[P, StudyAnswer]: ...
@overload
def asks(question: Callable[P, Timeline]) -> Callable[P, TimelineAnswer]: ...
@overload
def asks(question: Callable[P, Validate]) -> Callable[P, ValidateAnswer]: ...
