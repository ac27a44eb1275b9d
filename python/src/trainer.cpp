// quench._Trainer: a training run step by step; quench/trainer.py adds callbacks and data.

#include <deque>
#include <limits>
#include <memory>
#include <span>
#include <utility>

#include "core/system/log.h"
#include "core/system/signals.h"
#include "data/text/tokenize.h"
#include "python/src/model_handle.h"
#include "train/check/load.h"
#include "train/doctor/kernel_check.h"
#include "train/metrics/json_lines_sink.h"
#include "train/objectives/grpo/rewards/reward.h"
#include "train/plan/run_check.h"
#include "train/run/trainer.h"
#include "train/session/parallel_setup.h"

namespace quench::python {
namespace {

// Records of a run, kept until Python takes them: no Python code runs within a step.
class RecordQueue {
 public:
  void push(const char* kind, Json record) {
    record.set("kind", kind);
    records_.push_back(std::move(record));
  }
  [[nodiscard]] std::deque<Json> take() { return std::exchange(records_, {}); }

 private:
  std::deque<Json> records_;
};

class QueueSink final : public MetricsSink {
 public:
  explicit QueueSink(std::shared_ptr<RecordQueue> queue) : queue_(std::move(queue)) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "the Python callbacks"; }
  void step(const StepMetrics& metrics) override { queue_->push("step", to_json(metrics)); }
  void evaluation(const EvaluationMetrics& metrics) override { queue_->push("evaluation", to_json(metrics)); }
  void sample(const SampleRecord& sample) override { queue_->push("sample", to_json(sample)); }
  void health(const HealthMetrics& metrics) override { queue_->push("health", to_json(metrics)); }
  void event(const RunEvent& event) override { queue_->push("event", to_json(event)); }
  void rewind(std::int64_t) override {}

 private:
  std::shared_ptr<RecordQueue> queue_;
};

// A run is in one stage after the other; end() is possible in each.
class TrainerHandle {
 public:
  TrainerHandle(RunConfig config, Device device, std::shared_ptr<const distributed::Ranks> ranks, int console)
      : trainer_(std::make_shared<Trainer>(std::move(config), device, console, std::move(ranks))) {
    trainer_->add_metrics(std::make_unique<QueueSink>(queue_));
    trainer_->begin();
    model_.owner = trainer_;
    model_.model = &trainer_->session().model();
    model_.tokenizer = trainer_->run_model().tokenizer;
    model_.stop_tokens = trainer_->run_model().generation_ids.eos;
  }

  bool step() {
    require_open();
    return model_.run([this] { return trainer_->step(); });
  }
  nb::object end() {
    require_open();
    ended_ = true;  // also if it fails: a second end would write again
    return to_python(to_json(model_.run([this] { return trainer_->end(); })));
  }
  void log_evaluation(const std::string& name, nb::handle values) {
    require_open();
    EvaluationMetrics metrics{.step = trainer_->progress().step, .name = name};
    const Json numbers = to_json(values, "values");
    QUENCH_CHECK(numbers.is_object(), "values: {}, expected a mapping of names to numbers", numbers.type_name());
    for (const auto& [key, value] : numbers.as_object()) {
      QUENCH_CHECK(value.is_number(), "values: {} is {}, expected a number", key, value.type_name());
      metrics.values.emplace_back(key, value.as_double());
    }
    model_.run([&] { trainer_->log_evaluation(std::move(metrics)); });
  }
  [[nodiscard]] nb::object take_records() {
    nb::list list;
    for (const Json& record : queue_->take()) list.append(to_python(record));
    return list;
  }
  [[nodiscard]] nb::object state() const {
    const RunProgress& progress = trainer_->progress();
    return to_python(Json::Object{{"step", progress.step},
                                  {"total_steps", trainer_->planned_steps()},
                                  {"loss", progress.loss},
                                  {"tokens_seen", progress.tokens_seen},
                                  {"samples", progress.samples}});
  }
  [[nodiscard]] nb::object config() const { return to_python(to_json(trainer_->session().config())); }
  [[nodiscard]] const ModelHandle& model() const noexcept { return model_; }
  [[nodiscard]] bool ended() const noexcept { return ended_; }

 private:
  void require_open() const {
    QUENCH_CHECK(!ended_, "the run has ended; a new Trainer of the same config continues it");
  }

  std::shared_ptr<RecordQueue> queue_ = std::make_shared<RecordQueue>();
  std::shared_ptr<Trainer> trainer_;
  ModelHandle model_;
  bool ended_ = false;
};

// Reward "function" of a Python callable: a list of dicts in, a list of numbers or None out. Empty for None.
RewardFunction reward_function(const nb::object& callable) {
  if (callable.is_none()) return {};
  // Copies of the function do not touch the reference count, which needs the GIL.
  const std::shared_ptr<nb::object> shared(new nb::object(callable), [](nb::object* object) {
    const nb::gil_scoped_acquire gil;
    delete object;
  });
  return [shared](std::span<const RewardSample> samples) {
    const nb::gil_scoped_acquire gil;
    nb::list list;
    for (const RewardSample& sample : samples) list.append(to_python(to_json(sample)));
    std::vector<double> rewards;
    for (const nb::handle reward : (*shared)(list)) {
      double value = std::numeric_limits<double>::quiet_NaN();
      QUENCH_CHECK(reward.is_none() || nb::try_cast(reward, value),
                   "reward: item {} of the function's result is {}, "
                   "expected a number, or None for none",
                   rewards.size(), nb::repr(reward).c_str());
      rewards.push_back(value);
    }
    return rewards;
  };
}

// Function of runs that are made while it lives.
class RewardFunctionScope {
 public:
  explicit RewardFunctionScope(RewardFunction function) { set_reward_function(std::move(function)); }
  ~RewardFunctionScope() { set_reward_function({}); }
  RewardFunctionScope(const RewardFunctionScope&) = delete;
  RewardFunctionScope& operator=(const RewardFunctionScope&) = delete;
};

// `config`: a file or a name, or what a nonempty `document` is called in messages.
RunConfig read(const std::string& config, const std::string& document, const std::vector<std::string>& overrides,
               const CheckOptions& options = {}) {
  if (document.empty()) return load_run_config(config, overrides, options);
  return parse_run_config(document, config, overrides, options);
}

// Steps of `quench train` before its run.
TrainerHandle* make_trainer(const std::string& config, const std::string& document,
                            const std::vector<std::string>& overrides, const std::string& device_name, bool quiet,
                            const nb::object& reward) {
  int stopped = 0;
  const RewardFunctionScope rewards(reward_function(reward));
  try {
    return without_gil([&] {
      RunConfig run = read(config, document, overrides);
      set_log_level(run.metrics.log_level);
      const distributed::Environment place = distributed::read_environment();
      if (quiet || place.rank > 0) quieten_log();
      const Device device = device_of_rank(device_name, place);
      set_ranks(run, place.world_size);
      share_threads(run, place);
      run = require_startable(run, device);
      check_kernels(device);
      auto ranks = join_ranks(run, place, device);
      return new TrainerHandle(std::move(run), device, std::move(ranks), quiet ? -1 : 1);
    });
  } catch (const TokenizationStopped& stop) {
    stopped = stop.reason();
  }
  QUENCH_CHECK_AS(ErrorCode::failed, stopped == SIGINT, "stopped by {}", signal_text(stopped));
  PyErr_SetNone(PyExc_KeyboardInterrupt);
  throw nb::python_error();
}

// The config with every key, not its data and files.
nb::object read_config(const std::string& config, const std::string& document,
                       const std::vector<std::string>& overrides, const nb::object& reward) {
  const RewardFunctionScope rewards(reward_function(reward));
  const CheckOptions options{.data = false, .files = false, .plugins = false};
  return to_python(to_json(without_gil([&] { return read(config, document, overrides, options); })));
}

}  // namespace

void bind_trainer(nb::module_& module) {
  module.def("_read_config", read_config, nb::arg("config"), nb::arg("document"), nb::arg("overrides"),
             nb::arg("reward").none());
  nb::class_<TrainerHandle>(module, "_Trainer")
      .def(nb::new_(&make_trainer), nb::arg("config"), nb::arg("document"), nb::arg("overrides"), nb::arg("device"),
           nb::arg("quiet"), nb::arg("reward").none())
      .def("step", &TrainerHandle::step)
      .def("end", &TrainerHandle::end)
      .def("take_records", &TrainerHandle::take_records)
      .def("log_evaluation", &TrainerHandle::log_evaluation, nb::arg("name"), nb::arg("values"))
      .def_prop_ro("state", &TrainerHandle::state)
      .def_prop_ro("config", &TrainerHandle::config)
      .def_prop_ro("model", &TrainerHandle::model, nb::rv_policy::copy)
      .def_prop_ro("ended", &TrainerHandle::ended);
}

}  // namespace quench::python
