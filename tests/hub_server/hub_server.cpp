#include "tests/hub_server/hub_server.h"

#include <httplib.h>
#include <openssl/evp.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "core/json/json.h"
#include "tests/hub_server/hub_state.h"

namespace quench::testing {
namespace {

std::string hex_digest(const EVP_MD* algorithm, const std::string& text) {
  unsigned char value[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_Digest(text.data(), text.size(), value, &size, algorithm, nullptr);
  std::string result;
  for (unsigned i = 0; i < size; ++i) result += fmt::format("{:02x}", value[i]);
  return result;
}

}  // namespace

std::string sha256_of(const std::string& text) {
  return hex_digest(EVP_sha256(), text);
}

std::string git_blob_of(const std::string& text) {
  return hex_digest(EVP_sha1(), fmt::format("blob {}", text.size()) + std::string(1, '\0') + text);
}

HubServer::HubServer() : state_(std::make_unique<State>()) {
  state_->start();
}

HubServer::~HubServer() {
  state_->finish();
}

std::string HubServer::endpoint() const {
  return state_->hub_url();
}

void HubServer::set_files(const std::string& repo, const std::map<std::string, ServedFile>& files,
                          const std::string& revision) {
  const std::lock_guard lock(state_->mutex);
  state_->commit(repo, revision, files, "set");
}

void HubServer::set(const Behaviour& behaviour) {
  const std::lock_guard lock(state_->mutex);
  state_->behaviour = behaviour;
}

std::map<std::string, ServedFile> HubServer::files(const std::string& repo, const std::string& revision) const {
  const std::lock_guard lock(state_->mutex);
  const auto& found = state_->repos.at(repo);
  return found.commits.at(found.revisions.at(revision));
}

std::string HubServer::commit(const std::string& repo, const std::string& revision) const {
  const std::lock_guard lock(state_->mutex);
  return state_->repos.at(repo).revisions.at(revision);
}

bool HubServer::is_private(const std::string& repo) const {
  const std::lock_guard lock(state_->mutex);
  return state_->repos.at(repo).is_private;
}

std::string HubServer::last_message(const std::string& repo) const {
  const std::lock_guard lock(state_->mutex);
  return state_->repos.at(repo).message;
}

std::vector<SeenRequest> HubServer::requests() const {
  const std::lock_guard lock(state_->mutex);
  return state_->requests;
}

void HubServer::forget_requests() {
  const std::lock_guard lock(state_->mutex);
  state_->requests.clear();
}

std::uint64_t HubServer::sent_bytes() const {
  return state_->sent;
}

}  // namespace quench::testing
