#include "train/config/best_metric.h"
#include "train/config/fields/section_fields.h"
#include "train/config/section_enum_names.h"

namespace quench {
void add_output_fields(Fields& fields) {
  using enum ResumePolicy;
  add_field(fields, "checkpoint.enable", QUENCH_MEMBER(checkpoint.enable), any_value(), free,
            "Save checkpoints; false: none, not even when a signal ends the run.");
  add_field(fields, "checkpoint.folder", QUENCH_MEMBER(checkpoint.folder), optional_text(), free,
            "Folder of the run's checkpoints.", "<run.folder>/checkpoints");
  add_field(fields, "checkpoint.interval", QUENCH_MEMBER(checkpoint.interval), between(0, kMaxSteps), free,
            "Steps between checkpoints; 0: only the final one and those that a signal asks for.");
  add_field(fields, "checkpoint.keep_latest", QUENCH_MEMBER(checkpoint.keep_latest), between(0, 1e6), free,
            "Valid checkpoints to keep; 0: all.");
  add_field(fields, "checkpoint.keep_best", QUENCH_MEMBER(checkpoint.keep_best), any_value(), free,
            "Save after every evaluation that is the best so far by evaluation.early_stopping.metric, and keep that "
            "checkpoint whatever keep_latest.");
  add_field(fields, "checkpoint.async", QUENCH_MEMBER(checkpoint.async), any_value(), free,
            "Asynchronous saves: write from a copy in host memory while training continues.");
  add_field(fields, "checkpoint.resume", QUENCH_MEMBER(checkpoint.resume), any_value(), free,
            "auto: from the latest valid checkpoint if there is one; must: fail if there is none; "
            "never: start anew; or the number of a step in checkpoint.folder; or the path of a "
            "checkpoint.");
  add_field(fields, "checkpoint.save_final", QUENCH_MEMBER(checkpoint.save_final), any_value(), free,
            "Save after the last step, independent of the interval.");
  add_field(fields, "checkpoint.on_save_error", QUENCH_MEMBER(checkpoint.on_save_error), any_value(), free,
            "Reaction to a failed save (a full disk): continue and end with a failure status, or stop.");
  add_field(fields, "checkpoint.verify", QUENCH_MEMBER(checkpoint.verify), any_value(), free,
            "Check the stored hashes of every tensor when loading.");
  add_field(fields, "checkpoint.remote", QUENCH_MEMBER(checkpoint.remote), optional_text(), free,
            "Copies of the checkpoints in S3-compatible storage, s3://BUCKET/PREFIX, and a newer one to resume from; "
            "null: none.");
  add_field(fields, "checkpoint.remote_wait", QUENCH_MEMBER(checkpoint.remote_wait), between(0, 1e7), free,
            "Seconds that a run waits at its end for uploads to checkpoint.remote.");
  add_field(
      fields, "checkpoint.allow_changes", QUENCH_MEMBER(checkpoint.allow_changes), any_value(), free,
      "Keys that may differ from the checkpoint's config although they change the results of the rest of the run.");

  add_field(fields, "metrics.log_every", QUENCH_MEMBER(metrics.log_every), between(1, kMaxSteps), free,
            fmt::format("Steps between printed and recorded metrics; the first {} steps are recorded each.",
                        kFirstLoggedSteps));
  add_field(fields, "metrics.health_every", QUENCH_MEMBER(metrics.health_every), between(0, kMaxSteps), free,
            "Steps between measurements of each layer's quantization error (health.jsonl, TensorBoard, report, "
            "warnings); 0: never.");
  add_field(fields, "metrics.profile_step", QUENCH_MEMBER(metrics.profile_step), between(0, kMaxSteps), free,
            "Step whose ops are timed one by one on the device: a table on the console and in profile.txt of the run "
            "folder; 0: none.");
  add_field(fields, "metrics.tensorboard", QUENCH_MEMBER(metrics.tensorboard), any_value(), free,
            "Write TensorBoard event files.");
  add_field(fields, "metrics.jsonl", QUENCH_MEMBER(metrics.jsonl), any_value(), free, "Write metrics.jsonl.");
  add_field(fields, "metrics.progress", QUENCH_MEMBER(metrics.progress), any_value(), free,
            "Progress bar; auto: if standard error is a terminal.");
  add_field(fields, "metrics.folder", QUENCH_MEMBER(metrics.folder), optional_text(), free,
            "Folder of the files above.", "<run.folder>/metrics");
  add_field(fields, "metrics.log_level", QUENCH_MEMBER(metrics.log_level),
            one_of({"trace", "debug", "info", "warn", "error", "off"}), free,
            "Lowest log level on the console, where a run's own lines are info; log.txt of the run folder always holds "
            "info.");

  add_field(fields, "evaluation.interval", QUENCH_MEMBER(evaluation.interval), between(0, kMaxSteps), free,
            "Steps between evaluations: the loss on held-out data, the continuations of evaluation.prompts; 0: "
            "never.",
            "500, or 0 without held-out data and evaluation.prompts");
  add_field(fields, "evaluation.steps", QUENCH_MEMBER(evaluation.steps), between(0, kMaxSteps), free,
            "Batches of one evaluation; 0: the whole validation set.");
  add_field(fields, "evaluation.micro_batch_size", QUENCH_MEMBER(evaluation.micro_batch_size), between(1, 1 << 20),
            free, "Sequences of one batch on one rank; null: training.micro_batch_size.");
  add_field(fields, "evaluation.prompts", QUENCH_MEMBER(evaluation.prompts), any_value(), free,
            "Texts that the model continues at every evaluation, for samples.jsonl, TensorBoard and "
            "the report.");
  add_field(fields, "evaluation.chat_prompts", QUENCH_MEMBER(evaluation.chat_prompts), any_value(), free,
            "Render each prompt as a user's message by the chat template, as quench generate --chat does; false: it is "
            "the beginning of a text.");
  add_field(fields, "evaluation.sample_tokens", QUENCH_MEMBER(evaluation.sample_tokens), between(1, 1 << 24), free,
            "Maximum number of new tokens of each continuation.");
  add_field(fields, "evaluation.sample_temperature", QUENCH_MEMBER(evaluation.sample_temperature), between(0, 100),
            free, "Temperature of the draws, which depend on training.seed and the step; 0: greedy.");
  add_field(fields, "evaluation.early_stopping.patience", QUENCH_MEMBER(evaluation.early_stopping.patience),
            between(0, kMaxSteps), free,
            "Evaluations in a row without improvement after which the run ends; 0: it does not.");
  add_field(fields, "evaluation.early_stopping.metric", QUENCH_MEMBER(evaluation.early_stopping.metric),
            one_of(best_metric_names()), free,
            "Value on data.validation that has to improve: to fall, or to rise where more is better (rewards/..., "
            "logps/chosen).");
  add_field(fields, "evaluation.early_stopping.min_delta", QUENCH_MEMBER(evaluation.early_stopping.min_delta),
            at_least(0), free, "Least change that counts as an improvement.");
}

}  // namespace quench
