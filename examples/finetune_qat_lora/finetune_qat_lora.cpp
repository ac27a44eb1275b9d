// Fine-tunes a model folder with quantization-aware training and LoRA as a JSON config says, exports int4 weights,
// loads them back.
//   finetune_qat_lora CONFIG [--section.key=value ...]
#include <quench/train.h>

#include <cstdio>

using namespace quench;

int main(int argc, char** argv) {
  try {
    init_logging();  // without it, the library prints nothing
    if (argc < 2) throw Error(ErrorCode::bad_config, "usage: finetune_qat_lora CONFIG [--section.key=value ...]");
    const std::vector<std::string> overrides(argv + 2, argv + argc);
    const RunConfig config = load_run_config(argv[1], overrides);  // every mistake at once, with its line
    const Device device = parse_device("auto");
    std::fputs(to_string(estimate_run(ResolvedConfig(config), device)).c_str(), stdout);  // memory, FLOPs, disk

    Trainer trainer(config, device);  // progress on standard output and in the run folder
    const TrainResult result = trainer.run();
    std::printf("step %lld, loss %.4f, exported to %s\n", static_cast<long long>(result.step), result.loss,
                result.exported.c_str());

    // Deferred: weights that stay packed never take the memory of dense ones.
    nn::CausalLm model(read_model_config(result.exported), {.device = device, .trainable = false, .deferred = true});
    load_weights(model, result.exported, /*keep_packed=*/true);
    std::int64_t packed = 0;
    model.visit([&](const std::string&, nn::Module& module) {
      if (const auto* linear = dynamic_cast<const nn::Linear*>(&module)) packed += recipes::has_packed_weight(*linear);
    });
    const std::vector<std::int32_t> prompt = load_tokenizer(result.exported)->encode("The ");
    const GenerationResult text = generate(model, prompt, {.max_new_tokens = 8});
    std::printf("%lld packed layers, generated %zu tokens\n", static_cast<long long>(packed), text.tokens.size());
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
