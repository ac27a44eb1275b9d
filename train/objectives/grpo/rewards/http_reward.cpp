// Rewards that a server answers.

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "data/hub/http_client.h"
#include "train/objectives/grpo/grpo_section.h"
#include "train/objectives/grpo/rewards/reward.h"

namespace quench {
namespace {

class HttpReward final : public Reward {
 public:
  HttpReward(std::string url, double timeout, std::int64_t retries)
      : url_(std::move(url)), timeout_(timeout), retries_(retries) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, !url_.empty(),
                    "is empty; reward http needs the URL of a server, such as http://127.0.0.1:8000/rewards");
    QUENCH_CHECK_AS(ErrorCode::bad_config, url_.starts_with("http://") || url_.starts_with("https://"),
                    "{} is no URL of HTTP; write http://... or https://...", hub::shown_url(url_));
  }

  [[nodiscard]] std::vector<double> score(std::span<const RewardSample> samples) const override {
    Json list = Json::array();
    for (const RewardSample& sample : samples) list.push_back(to_json(sample));
    const std::string answer = post(Json(Json::Object{{"samples", std::move(list)}}).dump());
    Json rewards;
    try {
      rewards = Json::parse(answer);
    } catch (const Error& error) {
      QUENCH_FAIL(ErrorCode::corrupt, "{}: the answer is no JSON: {}", name(), error.what());
    }
    const Json* numbers = rewards.is_object() ? rewards.find("rewards") : &rewards;
    QUENCH_CHECK_AS(ErrorCode::corrupt, numbers != nullptr && numbers->is_array(),
                    "{}: the answer is no list of numbers and has no list \"rewards\"", name());
    std::vector<double> values;
    for (const Json& number : numbers->as_array()) {
      QUENCH_CHECK_AS(ErrorCode::corrupt, number.is_number() || number.is_null(),
                      "{}: reward {} of the answer is {}, expected a number, or null for none", name(),
                      values.size() + 1, number.type_name());
      values.push_back(number.is_null() ? std::numeric_limits<double>::quiet_NaN() : number.as_double());
    }
    QUENCH_CHECK_AS(ErrorCode::corrupt, values.size() == samples.size(),
                    "{}: the answer has {} rewards for {} completions; it needs one for each", name(), values.size(),
                    samples.size());
    return values;
  }

 private:
  [[nodiscard]] std::string name() const { return "grpo.reward_url " + hub::shown_url(url_); }

  // Body of a successful answer. Broken connections, timeouts and statuses 408, 429 and 5xx are repeated.
  [[nodiscard]] std::string post(const std::string& body) const {
    using Clock = std::chrono::steady_clock;
    hub::HubSettings settings;
    settings.certificates = hub::HubSettings::from_environment(false).certificates;
    settings.endpoint = url_.substr(0, url_.find('/', url_.find("//") + 2));
    Clock::time_point end;
    hub::HttpClient client(settings, [&] { return Clock::now() > end ? 1 : 0; });
    for (std::int64_t attempt = 1;; ++attempt) {
      std::string failure;
      end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_));
      try {
        const hub::HttpResponse response = client.send_once(
            {.method = "POST", .url = url_, .headers = {"Content-Type: application/json"}, .body = body});
        QUENCH_CHECK_AS(ErrorCode::failed, response.is_success(), "{}: the server answered with status {}: {}", name(),
                        response.status, response.body.substr(0, 200));
        return response.body;
      } catch (const hub::Stopped&) {
        failure = fmt::format("no answer after {} s (grpo.reward_timeout)", timeout_);
      } catch (const hub::TransientError& error) {
        failure = error.is_unreachable() ? "no connection could be made" : error.what();
      }
      QUENCH_CHECK_AS(ErrorCode::failed, attempt <= retries_,
                      "{}: {}; attempts: {} (grpo.reward_retries). The run can be resumed when the server answers",
                      name(), failure, attempt);
      std::this_thread::sleep_for(std::chrono::milliseconds(250 * std::min<std::int64_t>(attempt * attempt, 120)));
    }
  }

  std::string url_;
  double timeout_;
  std::int64_t retries_;
};

}  // namespace

std::unique_ptr<Reward> http_reward(const GrpoSection& section) {
  return std::make_unique<HttpReward>(section.reward_url, section.reward_timeout, section.reward_retries);
}

}  // namespace quench
