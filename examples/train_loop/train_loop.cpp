// Pre-trains a small Llama on a text file: accumulation, clipping, a learning-rate schedule, checkpoints, resume.
//   train_loop TEXT FOLDER [STEPS] [DEVICE]
#include <quench/train.h>

#include <cstdio>
#include <cstdlib>

using namespace quench;

namespace {

constexpr std::int64_t kSeqLen = 128, kSaveEvery = 25;
constexpr std::int64_t kMicroBatch = 4, kGlobalBatch = 8;  // rows of kSeqLen tokens

// The members of a Hugging Face config.json.
constexpr const char* kModel = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 259, "hidden_size": 128,
  "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
  "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": true})";

std::shared_ptr<const Dataset> open_text(const std::string& path, const Tokenizer& tokenizer,
                                         const std::string& cache_folder) {
  DatasetSpec spec;
  spec.sources = {{.paths = {path}}};
  spec.vocab_size = static_cast<std::uint64_t>(tokenizer.vocab_size());
  spec.tokenizer = &tokenizer;
  spec.packing.seq_len = kSeqLen;
  spec.sampler.seed = 1;
  spec.text.folder = cache_folder;  // tokenized text
  return open_dataset(spec);
}

// Adds the gradients of one micro-batch; returns its loss, already divided by the tokens of the step.
double accumulate(const nn::CausalLm& model, const Batch& batch, std::int64_t step_tokens) {
  const Device device = model.options().device;
  const std::int64_t tokens = batch.input_ids.numel();  // [rows, seq_len], flat for the model
  autograd::Tape tape;
  autograd::Variable loss;
  {
    const autograd::TapeScope scope(tape);  // the forward pass is recorded here
    loss = model.loss(batch.input_ids.view({tokens}).to(device), batch.labels.view({tokens}).to(device),
                      batch_context(model, batch), 1.0f / static_cast<float>(step_tokens));
  }
  tape.backward(loss);
  return static_cast<double>(loss.value().to(Device{}).data<float>()[0]);  // Device{}: the CPU
}

void train(const std::string& text, const std::string& folder, std::int64_t steps, Device device) {
  const RunLock lock(folder);  // one process per folder
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer("bytes");
  nn::CausalLm model(nn::parse_model_config(Json::parse(kModel), "model"), {.device = device});
  model.initialize(/*seed=*/1);
  nn::AdamW optimizer(model.parameters(), {.weight_decay = 0.1});

  std::int64_t step = 0;
  std::uint64_t samples = 0;  // taken from the data
  const std::string checkpoint_folder = folder + "/checkpoints";
  load_latest(checkpoint_folder, [&](CheckpointReader& checkpoint) {  // not called without a checkpoint
    restore_training_tensors(checkpoint, model, optimizer);
    step = checkpoint.state().step;
    samples = static_cast<std::uint64_t>(checkpoint.state().samples);
    std::printf("resumed at step %lld\n", static_cast<long long>(step));
  });
  const LrSchedule schedule({.peak_lr = 3e-3, .total_steps = steps, .warmup_steps = 10, .min_lr_ratio = 0.1});
  const BatchSplit split{.micro_batch_size = kMicroBatch, .global_batch_size = kGlobalBatch};
  BatchLoader loader(open_text(text, *tokenizer, folder + "/cache"), split,
                     {.first_sample = samples, .device = device});
  CheckpointWriter writer(checkpoint_folder, lock, {.keep_latest = 2});

  const Tensor squared_norm = Tensor::empty({1}, DType::f64, device), norm = Tensor::empty({1}, DType::f32, device),
               scale = Tensor::empty({1}, DType::f32, device);
  while (step < steps) {
    std::vector<Batch> batches;
    std::int64_t tokens = 0;
    for (std::int64_t i = 0; i < split.accumulation_steps(); ++i) {
      batches.push_back(loader.next().value());
      tokens += batches.back().valid_tokens;
    }
    writer.before_change();  // waits while weights and gradients are copied into the last checkpoint
    optimizer.zero_grad();
    double loss = 0;
    for (const Batch& batch : batches) loss += accumulate(model, batch, tokens);

    // As torch.nn.utils.clip_grad_norm_; step() multiplies the gradients by `scale`.
    optimizer.squared_grad_norm(squared_norm);
    clip_scale({.squared_norm = squared_norm, .max_norm = 1.0f, .norm = norm, .scale = scale});
    const double lr = schedule.lr(step);
    optimizer.step(lr, ++step, scale);  // steps count from 1

    if (step % 10 == 0 || step == steps)
      std::printf("step %lld  loss %.4f  grad norm %.3f  lr %.2e\n", static_cast<long long>(step), loss,
                  static_cast<double>(norm.to(Device{}).data<float>()[0]), lr);
    if (step % kSaveEvery == 0 || step == steps) {
      CheckpointState state;
      state.step = step;
      state.samples = static_cast<std::int64_t>(loader.position());
      writer.save(state, training_tensors(model, optimizer));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 3) throw Error(ErrorCode::bad_config, "usage: train_loop TEXT FOLDER [STEPS] [DEVICE]");
    train(argv[1], argv[2], argc > 3 ? std::atoll(argv[3]) : 100, parse_device(argc > 4 ? argv[4] : "auto"));
  } catch (const Error& error) {
    std::fprintf(stderr, "error (%s): %s\n", std::string(to_string(error.code())).c_str(), error.what());
    return 1;
  }
}
