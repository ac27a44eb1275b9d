#pragma once
// Reads the traces of fault_shim.cpp and computes what a disk may hold after a power cut.
//
// The model is the one POSIX allows: the content of a file is certain only up to its last fsync, the entries of a
// folder only up to the folder's last fsync. Of what came after, any subset may have reached the disk, writes in part.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace quench::testing {

struct TraceRecord {
  std::string op;    // create mkdir write fsync truncate extend rename exchange unlink
  std::string path;  // first name of rename and exchange: the first
  std::string path_to;
  std::size_t offset = 0;  // position of write; size of truncate and extend
  std::string bytes;       // contents of write
};

inline std::vector<TraceRecord> read_trace(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<TraceRecord> trace;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    TraceRecord record;
    words >> record.op;
    std::size_t size = 0;
    if (record.op == "write") words >> record.offset >> size;
    if (record.op == "truncate" || record.op == "extend") words >> record.offset;
    words.ignore(1);
    std::getline(words, record.path, '\t');
    std::getline(words, record.path_to);
    record.bytes.resize(size);
    if (!file.read(record.bytes.data(), static_cast<std::streamsize>(size)))
      throw std::runtime_error("trace is cut short: " + line);
    trace.push_back(std::move(record));
  }
  return trace;
}

// A folder whose history is replayed; `crash` writes one of its possible states to disk.
class SimulatedDisk {
 public:
  // Everything in `folder` is taken as durable.
  explicit SimulatedDisk(const std::filesystem::path& folder) : root_path_(folder), root_(scan(folder)) {}

  void apply(const TraceRecord& record) {
    const auto [folder, name] = locate(record.path);
    if (!folder) return;  // outside, or unknown to the model (the lock)
    if (record.op == "create" || record.op == "mkdir") {
      if (folder->live.contains(name)) return;
      auto node = std::make_shared<Node>();
      node->folder = record.op == "mkdir";
      change(*folder, {{name, node}});
    } else if (record.op == "unlink") {
      change(*folder, {{name, nullptr}});
    } else if (record.op == "rename" || record.op == "exchange") {
      const auto [folder_to, name_to] = locate(record.path_to);
      if (folder_to != folder) throw std::runtime_error("a rename between folders is not modelled: " + record.path_to);
      const auto node = folder->live.at(name);
      const auto other = record.op == "exchange" ? folder->live.at(name_to) : nullptr;
      change(*folder, {{name, other}, {name_to, node}});
    } else {
      const auto found = record.path == root_path_.string() ? root_
                         : folder->live.contains(name)      ? folder->live[name]
                                                            : nullptr;
      if (!found) return;
      if (record.op == "fsync") {
        found->durable = found->live;
        found->durable_bytes = found->live_bytes;
        found->pending_entries.clear();
        found->pending_bytes.clear();
      } else {
        modify(found->live_bytes, record, record.bytes.size());
        found->pending_bytes.push_back(record);
      }
    }
  }

  // Each unsynced change reaches the disk with this probability.
  void crash(const std::filesystem::path& target, double probability, std::mt19937& random) const {
    materialise(*root_, target, probability, random);
  }

 private:
  struct Node;
  using Entries = std::map<std::string, std::shared_ptr<Node>>;  // null: no such entry
  struct Node {
    Entries live, durable;
    std::vector<Entries> pending_entries;  // each is atomic
    std::string live_bytes, durable_bytes;
    std::vector<TraceRecord> pending_bytes;
    bool folder = false;
  };

  static std::shared_ptr<Node> scan(const std::filesystem::path& path) {
    auto node = std::make_shared<Node>();
    node->folder = std::filesystem::is_directory(path);
    if (node->folder) {
      for (const auto& entry : std::filesystem::directory_iterator(path))
        node->live[entry.path().filename().string()] = scan(entry.path());
      node->durable = node->live;
    } else {
      std::ostringstream bytes;
      bytes << std::ifstream(path, std::ios::binary).rdbuf();
      node->live_bytes = node->durable_bytes = bytes.str();
    }
    return node;
  }

  // The node of the path's folder and the last component; for the root itself the root and ".".
  std::pair<std::shared_ptr<Node>, std::string> locate(const std::string& path) const {
    const auto relative = std::filesystem::path(path).lexically_relative(root_path_);
    if (relative.empty() || *relative.begin() == "..") return {};
    std::shared_ptr<Node> node = root_;
    for (const auto& component : relative.parent_path()) {
      const auto found = node->live.find(component.string());
      if (found == node->live.end() || !found->second) return {};
      node = found->second;
    }
    return {node, relative.filename().string()};
  }

  static void assign(Entries& entries, const Entries& changes) {
    for (const auto& [name, node] : changes) {
      if (node) {
        entries[name] = node;
      } else {
        entries.erase(name);
      }
    }
  }

  static void change(Node& folder, Entries changes) {
    assign(folder.live, changes);
    folder.pending_entries.push_back(std::move(changes));
  }

  static void modify(std::string& content, const TraceRecord& record, std::size_t size) {
    if (record.op == "write") {
      content.resize(std::max(content.size(), record.offset + size));
      content.replace(record.offset, size, record.bytes, 0, size);
    } else if (record.op == "truncate" || content.size() < record.offset) {
      content.resize(record.offset);
    }
  }

  static void materialise(const Node& node, const std::filesystem::path& target, double probability,
                          std::mt19937& random) {
    std::bernoulli_distribution reaches(probability);
    Entries entries = node.durable;
    for (const Entries& changes : node.pending_entries)
      if (reaches(random)) assign(entries, changes);
    std::string content = node.durable_bytes;
    for (const TraceRecord& record : node.pending_bytes) {
      if (!reaches(random)) continue;
      const bool torn = probability < 1 && random() % 4 == 0 && !record.bytes.empty();
      modify(content, record, torn ? random() % record.bytes.size() : record.bytes.size());
    }
    if (!node.folder) {
      std::ofstream(target, std::ios::binary) << content;
      return;
    }
    std::filesystem::create_directory(target);
    for (const auto& [name, child] : entries) materialise(*child, target / name, probability, random);
  }

  std::filesystem::path root_path_;
  std::shared_ptr<Node> root_;
};

}  // namespace quench::testing
