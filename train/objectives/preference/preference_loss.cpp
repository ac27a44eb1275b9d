#include "train/objectives/preference/preference_loss.h"

#include <algorithm>
#include <cmath>

#include "core/system/check.h"

namespace quench {
namespace {

double log_sigmoid(double x) {
  return x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x));
}

double sigmoid(double x) {
  return std::exp(log_sigmoid(x));
}

// Loss of a margin, and its derivative.
struct MarginLoss {
  double loss, derivative;
};

// -log sigmoid(beta * x), with labels exchanged with probability `smoothing`.
MarginLoss smoothed_log_loss(double x, double beta, double smoothing) {
  return {-log_sigmoid(beta * x) * (1 - smoothing) - log_sigmoid(-beta * x) * smoothing,
          beta * (smoothing * sigmoid(beta * x) - (1 - smoothing) * sigmoid(-beta * x))};
}

// log(p / (1 - p)) of log p, and its derivative 1 / (1 - p). p = 1 has infinite odds.
MarginLoss log_odds_of(double log_p) {
  const double rest = -std::expm1(log_p);
  return {log_p - std::log(rest), 1 / rest};
}

}  // namespace

PairLoss pair_loss(const PreferenceLossOptions& options, const AnswerScore& chosen, const AnswerScore& rejected) {
  const bool mean = averages_tokens(options);
  const double chosen_count = mean ? static_cast<double>(chosen.tokens) : 1;
  const double rejected_count = mean ? static_cast<double>(rejected.tokens) : 1;
  const double beta = options.beta;
  PairLoss result;
  result.chosen_logp = chosen.logp / chosen_count;
  result.rejected_logp = rejected.logp / rejected_count;
  const double chosen_ratio = result.chosen_logp - chosen.reference / chosen_count;
  const double rejected_ratio = result.rejected_logp - rejected.reference / rejected_count;
  result.chosen_reward = beta * chosen_ratio;
  result.rejected_reward = beta * rejected_ratio;
  const double margin = chosen_ratio - rejected_ratio;
  double d_chosen = 0, d_rejected = 0;  // with respect to chosen_logp and rejected_logp
  switch (options.loss) {
    case PreferenceLoss::dpo: {
      const MarginLoss loss = smoothed_log_loss(margin, beta, options.label_smoothing);
      result.loss = loss.loss;
      d_chosen = loss.derivative;
      d_rejected = -loss.derivative;
      break;
    }
    case PreferenceLoss::ipo: {
      const double distance = margin - 1 / (2 * beta);
      result.loss = distance * distance;
      d_chosen = 2 * distance;
      d_rejected = -2 * distance;
      break;
    }
    case PreferenceLoss::simpo: {
      const MarginLoss loss = smoothed_log_loss(margin - options.simpo_margin / beta, beta, options.label_smoothing);
      result.loss = loss.loss;
      d_chosen = loss.derivative;
      d_rejected = -loss.derivative;
      break;
    }
    case PreferenceLoss::orpo: {
      const MarginLoss good = log_odds_of(result.chosen_logp), bad = log_odds_of(result.rejected_logp);
      result.log_odds = good.loss - bad.loss;
      result.loss = -beta * log_sigmoid(result.log_odds);
      const double derivative = -beta * sigmoid(-result.log_odds);
      d_chosen = derivative * good.derivative;
      d_rejected = -derivative * bad.derivative;
      break;
    }
    case PreferenceLoss::kto: QUENCH_FAIL(ErrorCode::invalid_argument, "kto is no loss of pairs");
  }
  result.d_chosen = d_chosen / chosen_count;
  result.d_rejected = d_rejected / rejected_count;
  return result;
}

LabelLoss label_loss(const PreferenceLossOptions& options, const AnswerScore& answer, bool desirable,
                     double divergence) {
  const double beta = options.beta, ratio = answer.logp - answer.reference;
  const double sign = desirable ? 1 : -1;
  const double weight = desirable ? options.desirable_weight : options.undesirable_weight;
  const double p = sigmoid(sign * beta * (ratio - divergence));
  const double rest = sigmoid(-sign * beta * (ratio - divergence));
  return {weight * rest, -sign * weight * beta * p * rest, beta * ratio};
}

double kto_divergence(double sum, std::int64_t count) {
  return count > 0 ? std::max(0.0, sum / static_cast<double>(count)) : 0.0;
}

}  // namespace quench
