// Trains the run of a config in a loop of one's own, and writes the model. The session builds what `quench train`
// builds: recipe, adapters, optimizer and objective of the config.
//   run_session CONFIG OUTPUT DEVICE [--KEY=VALUE ...]
#include <quench/train.h>

#include <cstdio>

using namespace quench;

namespace {

void train(RunConfig config, const std::string& output, Device device) {
  RunSession session(ResolvedConfig(config), {.device = device});
  session.load_base();  // weights under adapters; none in full training
  session.share();      // over ranks; here one
  session.add_optimizer();

  ValidationCache checks(config.data.cache + "/file_checks.json");  // hashes of the data's files
  const DataSetup data = open_data(config, session.model_config(), &checks);
  if (const std::string warning = fit_batch(config, *data.train); !warning.empty()) session.set_batch(config);
  const std::int64_t steps = total_steps(config, *data.train);
  const RunIdentity identity = run_identity(config, data.tokenizer.get(), checks);
  const ObjectiveInputs inputs{.data = data,
                               .identity = identity,
                               .checks = &checks,
                               .samples = static_cast<std::uint64_t>(steps * global_batch_size(config))};
  session.add_objective(&inputs);
  session.add_step();
  session.fill();  // weights of model.path, or random ones
  session.objective()->start({.data = data, .is_initial = true, .checks = checks});

  const BatchSplit split{.micro_batch_size = config.training.micro_batch_size,
                         .global_batch_size = global_batch_size(config)};
  BatchLoader loader(data.train, split, {.device = device});
  const LrSchedule schedule(lr_schedule_options(config, steps));
  for (std::int64_t step = 1; step <= steps; ++step) {
    std::vector<Batch> batches;
    for (std::int64_t i = 0; i < split.accumulation_steps(); ++i) batches.push_back(loader.next().value());
    const GradientReport report = session.step()->accumulate(batches, step);
    session.step()->apply(schedule.lr(step - 1), step);
    std::printf("step %lld  loss %.6f  grad norm %.6f\n", static_cast<long long>(step), report.loss, report.grad_norm);
  }

  if (recipes::Adapters* adapters = session.setup().adapters.get()) {
    recipes::make_dense(session.model());
    adapters->merge();
  }
  ModelFolderOptions options;
  options.dtype = config.training.dtype;
  options.small_files.tokenizer = data.tokenizer.get();
  (void)save_model_folder(session.model(), {.folder = output}, options);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    init_logging();
    if (argc < 4) throw Error(ErrorCode::bad_config, "usage: run_session CONFIG OUTPUT DEVICE [--KEY=VALUE ...]");
    const std::vector<std::string> overrides(argv + 4, argv + argc);
    train(load_run_config(argv[1], overrides), argv[2], parse_device(argv[3]));
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
