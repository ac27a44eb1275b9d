// Opens a model folder, quantized or not, a GGUF file or a training run, and streams a continuation.
//   embed_inference MODEL PROMPT [TOKENS] [DEVICE]
#include <quench/train.h>

#include <cstdio>
#include <cstdlib>

using namespace quench;

int main(int argc, char** argv) {
  try {
    if (argc < 3) throw Error(ErrorCode::bad_config, "usage: embed_inference MODEL PROMPT [TOKENS] [DEVICE]");
    const Device device = parse_device(argc > 4 ? argv[4] : "auto");
    const Model model = Model::open(
        argv[1], {.device = device.to_string(), .dtype = device.is_cpu() ? "f32" : "bf16", .mtp = MtpLayers::left_out});
    const std::unique_ptr<Tokenizer> tokenizer = model.require_tokenizer();
    const std::vector<std::int32_t> prompt = tokenizer->encode(argv[2]);
    GenerationOptions options;
    options.max_new_tokens = argc > 3 ? std::atoll(argv[3]) : 64;
    options.sampling = {.temperature = 0.8, .top_p = 0.95, .seed = 1};
    options.stop_tokens = model.token_ids(tokenizer.get()).generation.eos;

    std::fputs(argv[2], stdout);
    StreamDecoder decoder(*tokenizer, {.skip_special = true});  // a character may be several tokens
    decoder.skip(prompt);                                       // context only
    const GenerationResult result = generate(model.model(), prompt, options, [&](std::int32_t token) {
      std::fputs(decoder.push_text(token).c_str(), stdout);
      return std::fflush(stdout) == 0;  // false ends the generation
    });
    std::printf("%s\n%zu tokens, %.1f tokens/s\n", decoder.finish_text().c_str(), result.tokens.size(),
                static_cast<double>(result.tokens.size()) / result.decode_seconds);
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
