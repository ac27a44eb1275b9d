#include "train/objectives/entries.h"

namespace quench {

const ChoiceTable<ObjectiveEntry>& objective_table() {
  // In the order of their config sections.
  static const ChoiceTable<ObjectiveEntry> table("objective", {{.name = "cross_entropy",
                                                                .summary = "next-token cross-entropy",
                                                                .trains = [](const RunConfig&) { return false; },
                                                                .takes_parts = true,
                                                                .takes_slices = true,
                                                                .takes_stages = true},
                                                               mtp_entry(),
                                                               distillation_entry(),
                                                               preference_entry(),
                                                               grpo_entry()});
  return table;
}

}  // namespace quench
