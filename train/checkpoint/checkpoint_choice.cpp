#include "train/checkpoint/checkpoint_choice.h"

#include <exception>
#include <memory>
#include <string>
#include <system_error>

#include "core/system/log.h"
#include "distributed/communication_error.h"
#include "distributed/ranks.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLabel = "checkpoint";
constexpr const char* kRemedy =
    "all ranks must read one folder; where a network file system shows it late to some of them, start again";

// Rank 0's text. The others may wait for files.
std::string of_first(distributed::ProcessGroup& peers, std::string_view mine) {
  std::string text;
  distributed::together(peers, kLabel, [&] { text = distributed::exchange_texts(peers, mine, kLabel).front(); });
  return text;
}

std::unique_ptr<CheckpointReader> open_same(const fs::path& path, const std::string& uuid, Verify verify) {
  std::unique_ptr<CheckpointReader> reader;
  try {
    reader = std::make_unique<CheckpointReader>(path, verify);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found) throw;
    QUENCH_FAIL(ErrorCode::failed, "rank 0 loads {}, which this rank does not find: {}; {}", path.string(),
                error.what(), kRemedy);
  }
  const std::string& found = reader->manifest().save_uuid;
  QUENCH_CHECK_AS(ErrorCode::failed, found == uuid, "rank 0 loads {} of save {}, this rank finds save {} there; {}",
                  path.string(), uuid, found, kRemedy);
  return reader;
}

// Offers: "<save UUID> <path>". End: empty, or kEndedElsewhere for an error of another rank.
constexpr std::string_view kEndedElsewhere = "!";

fs::path lead(distributed::ProcessGroup& peers, const LoadCheckpoint& load,
              const std::function<fs::path(const LoadCheckpoint&)>& choose) {
  fs::path loaded;
  std::exception_ptr error;
  bool elsewhere = false;
  try {
    loaded = choose([&](CheckpointReader& reader) {
      of_first(peers, reader.manifest().save_uuid + ' ' + reader.path().string());
      distributed::together(peers, kLabel, [] {});  // opened
      load(reader);
    });
  } catch (const distributed::CommunicationError&) {
    throw;
  } catch (const std::exception& failure) {
    error = std::current_exception();
    elsewhere = dynamic_cast<const distributed::RelayedError*>(&failure) != nullptr;
  }
  of_first(peers, elsewhere ? kEndedElsewhere : "");
  distributed::together(peers, kLabel, [&] {
    if (error) std::rethrow_exception(error);
  });
  return loaded;
}

fs::path follow(distributed::ProcessGroup& peers, Verify verify, const LoadCheckpoint& load) {
  fs::path loaded;
  std::exception_ptr own;  // error of the last offer
  while (true) {
    const std::string offer = of_first(peers, "");
    const std::size_t space = offer.find(' ');
    if (space == std::string::npos) {
      distributed::together(peers, kLabel, [&] {
        if (own && offer == kEndedElsewhere) std::rethrow_exception(own);
      });
      return loaded;
    }
    own = nullptr;
    loaded = offer.substr(space + 1);
    try {
      std::unique_ptr<CheckpointReader> reader;
      distributed::together(peers, kLabel, [&] { reader = open_same(loaded, offer.substr(0, space), verify); });
      load(*reader);
    } catch (const distributed::CommunicationError&) {
      throw;
    } catch (const distributed::RelayedError&) {
      loaded.clear();  // rank 0 has it too, and continues or ends
    } catch (const std::exception&) {
      loaded.clear();
      own = std::current_exception();
    }
  }
}

}  // namespace

fs::path load_first(std::span<const fs::path> paths, const LoadCheckpoint& load, Verify verify) {
  for (const fs::path& path : paths) {
    std::error_code ignored;
    if (fs::symlink_status(path, ignored).type() == fs::file_type::not_found) continue;
    try {
      CheckpointReader reader(path, verify);
      load(reader);
      return path;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt) throw;
      QUENCH_LOG_ERROR("cannot load {}: {}", path.string(), error.what());
    }
  }
  return {};
}

fs::path load_chosen(distributed::ProcessGroup& peers, Verify verify, const LoadCheckpoint& load,
                     const std::function<fs::path(const LoadCheckpoint&)>& choose) {
  if (peers.size() == 1) return choose(load);
  return peers.rank() == 0 ? lead(peers, load, choose) : follow(peers, verify, load);
}

}  // namespace quench
