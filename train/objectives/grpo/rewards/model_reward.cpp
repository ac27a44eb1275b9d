// Rewards of a reward model: a scalar head over the last token, as AutoModelForSequenceClassification(num_labels=1).

#include <algorithm>

#include "core/ops/elementwise.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "nn/decoder/causal_lm.h"
#include "train/model_folder/model_folder.h"
#include "train/objectives/grpo/grpo_section.h"
#include "train/objectives/grpo/rewards/reward.h"

namespace quench {
namespace {

constexpr std::string_view kScoreHead = "score";
constexpr std::int64_t kPassTokens = 8192;  // tokens of a forward pass, or one longer text

class ModelReward final : public Reward {
 public:
  explicit ModelReward(std::string folder) : folder_(std::move(folder)) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, !folder_.empty(),
                    "is empty; reward model needs the folder of a reward model");
  }

  void open(Device device, DType dtype) override {
    nn::ModelConfig config = read_model_config(folder_);
    config.tie_word_embeddings = true;  // there is no head of tokens
    const nn::ParameterOptions options{.dtype = dtype, .device = device, .trainable = false};
    model_ = std::make_unique<nn::CausalLm>(config, options);
    head_ = &model_->add_head(std::string(kScoreHead), 1, options);
    if (device.is_meta()) return;
    load_weights(*model_, folder_);
    tokenizer_ = load_tokenizer(folder_);
  }

  void plan(std::int64_t samples, std::int64_t tokens) const override {
    tokens = std::min(tokens, model_->config().context_length());
    const std::int64_t together = std::min(samples, std::max<std::int64_t>(1, kPassTokens / tokens));
    std::vector<std::vector<std::int32_t>> texts(static_cast<std::size_t>(together));
    for (std::vector<std::int32_t>& text : texts) text.resize(static_cast<std::size_t>(tokens));
    (void)hidden(texts);
  }

  [[nodiscard]] std::vector<double> score(std::span<const RewardSample> samples) const override {
    QUENCH_CHECK(model_ != nullptr, "grpo.reward_model {} is not open", folder_);
    std::vector<double> rewards;
    std::vector<std::vector<std::int32_t>> texts;
    std::int64_t tokens = 0;
    const auto flush = [&] {
      if (!texts.empty()) append_scores(texts, rewards);
      texts.clear();
      tokens = 0;
    };
    for (const RewardSample& sample : samples) {
      std::vector<std::int32_t> ids = tokenizer_->encode(std::string(sample.prompt) + std::string(sample.completion),
                                                         {.add_special_tokens = false});
      const auto longest = static_cast<std::size_t>(model_->config().context_length());
      if (ids.size() > longest) ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(longest));
      QUENCH_CHECK_AS(ErrorCode::corrupt, !ids.empty(), "grpo.reward_model {}: a prompt with its completion is empty",
                      folder_);
      if (tokens + std::ssize(ids) > kPassTokens) flush();
      tokens += std::ssize(ids);
      texts.push_back(std::move(ids));
    }
    flush();
    return rewards;
  }

 private:
  // Hidden states [N, H] of all texts, one after another.
  [[nodiscard]] Tensor hidden(const std::vector<std::vector<std::int32_t>>& texts) const {
    const autograd::NoGrad no_grad;
    std::vector<std::int32_t> ids, positions;
    std::vector<SequenceRange> sequences;
    for (const std::vector<std::int32_t>& text : texts) {
      const std::int64_t at = std::ssize(ids), length = std::ssize(text);
      sequences.push_back({at, length, at, length});
      ids.insert(ids.end(), text.begin(), text.end());
      for (std::int64_t i = 0; i < length; ++i) positions.push_back(static_cast<std::int32_t>(i));
    }
    const Device device = model_->options().device;
    const auto on_device = [&](const std::vector<std::int32_t>& values) {
      return Tensor::from_values<std::int32_t>({std::ssize(values)}, values).to(device);
    };
    const Tensor device_positions = on_device(positions);
    return model_->hidden(on_device(ids), model_->make_context(std::move(sequences), device_positions)).value();
  }

  void append_scores(const std::vector<std::vector<std::int32_t>>& texts, std::vector<double>& rewards) const {
    const Tensor states = hidden(texts);
    const std::int64_t width = states.size(1);
    const auto f32_on_host = [](const Tensor& tensor) {
      const Tensor values = Tensor::empty(tensor.shape(), DType::f32, tensor.device());
      if (tensor.dtype() == DType::f32) return tensor.to(Device{});
      cast({tensor, values});
      return values.to(Device{});
    };
    const Tensor weight = f32_on_host(head_->variable.value());
    std::int64_t end = 0;
    for (const std::vector<std::int32_t>& text : texts) {
      end += std::ssize(text);
      const Tensor last = f32_on_host(states.narrow(0, end - 1, 1));
      double sum = 0;
      for (std::int64_t i = 0; i < width; ++i)
        sum += static_cast<double>(last.data<float>()[i]) * static_cast<double>(weight.data<float>()[i]);
      rewards.push_back(sum);
    }
  }

  std::string folder_;
  std::unique_ptr<nn::CausalLm> model_;
  nn::Parameter* head_ = nullptr;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

}  // namespace

std::unique_ptr<Reward> model_reward(const GrpoSection& section) {
  return std::make_unique<ModelReward>(section.reward_model);
}

}  // namespace quench
