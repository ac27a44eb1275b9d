#pragma once
// Parsed form of QUENCH_FAULT, for fault_shim.cpp.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <cerrno>

namespace quench::fault {

enum Op {
  kCreate,
  kOpen,
  kMkdir,
  kWrite,
  kFsync,
  kFallocate,
  kTruncate,
  kClose,
  kRename,
  kExchange,
  kUnlink,
  kFlock,
  kStat,
  kParallel,
  kList,
  kOpCount
};
constexpr const char* kOpNames[kOpCount] = {"create",    "open",     "mkdir", "write",    "fsync",
                                            "fallocate", "truncate", "close", "rename",   "exchange",
                                            "unlink",    "flock",    "stat",  "parallel", "list"};

struct ErrnoName {
  const char* name;
  int value;
};
constexpr ErrnoName kErrnoNames[] = {
    {"EACCES", EACCES}, {"EBUSY", EBUSY},           {"EDQUOT", EDQUOT}, {"EEXIST", EEXIST},
    {"EINTR", EINTR},   {"EINVAL", EINVAL},         {"EIO", EIO},       {"ENOSPC", ENOSPC},
    {"ENOSYS", ENOSYS}, {"EOPNOTSUPP", EOPNOTSUPP}, {"EROFS", EROFS},   {"EXDEV", EXDEV}};

enum class Action { none, kill, stop, tear, cut, delay, fail };

struct ActionName {
  const char* name;
  Action action;
};
constexpr ActionName kActions[] = {{"none", Action::none}, {"kill", Action::kill}, {"stop", Action::stop},
                                   {"tear", Action::tear}, {"short", Action::cut}, {"delay", Action::delay}};

struct Fault {
  Action action = Action::none;
  int error = 0;
  long at = 0;
  bool sticky = false;
  unsigned ops = ~(1u << kStat | 1u << kParallel | 1u << kList);
  char path[512] = {};
  long milliseconds = 0;
  std::atomic<bool> armed{true};
  int trace = -1;
};

[[noreturn]] inline void usage(const char* what) {
  fprintf(stderr, "fault shim: QUENCH_FAULT: bad '%s'\n", what);
  abort();
}

inline void parse_action(Fault& fault, const char* value) {
  for (const auto& [name, action] : kActions) {
    if (strcmp(value, name) != 0) continue;
    fault.action = action;
    return;
  }
  for (const ErrnoName& known : kErrnoNames) {
    if (strcmp(value, known.name) != 0) continue;
    fault.action = Action::fail;
    fault.error = known.value;
    return;
  }
  usage(value);
}

inline void parse_ops(Fault& fault, char* list) {
  fault.ops = 0;
  char* rest = nullptr;
  for (char* name = strtok_r(list, ",", &rest); name != nullptr; name = strtok_r(nullptr, ",", &rest)) {
    int op = 0;
    while (op < kOpCount && strcmp(name, kOpNames[op]) != 0) ++op;
    if (op == kOpCount) usage(name);
    fault.ops |= 1u << op;
  }
}

inline void parse_fault(Fault& fault, const char* spec) {
  char text[2048];
  snprintf(text, sizeof text, "%s", spec);
  char* rest = nullptr;
  for (char* item = strtok_r(text, ";", &rest); item != nullptr; item = strtok_r(nullptr, ";", &rest)) {
    char* value = strchr(item, '=');
    if (value != nullptr) *value++ = '\0';
    if (strcmp(item, "sticky") == 0)
      fault.sticky = true;
    else if (strcmp(item, "wait") == 0)
      fault.armed = false;
    else if (value == nullptr)
      usage(item);
    else if (strcmp(item, "do") == 0)
      parse_action(fault, value);
    else if (strcmp(item, "at") == 0)
      fault.at = atol(value);
    else if (strcmp(item, "ops") == 0)
      parse_ops(fault, value);
    else if (strcmp(item, "path") == 0)
      snprintf(fault.path, sizeof fault.path, "%s", value);
    else if (strcmp(item, "ms") == 0)
      fault.milliseconds = atol(value);
    else
      usage(item);
  }
}

}  // namespace quench::fault
