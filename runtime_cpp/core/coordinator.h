// The central part of a policy that needs one: members report numbers, it answers with numbers.
//
// It lives on a node that all its members talk with anyway (a local server, or the scheduler) and sees
// everything on that node's clock, so clocks need not agree. Reports and replies are control
// messages of the protocol: both modes have them, with their latency.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/types.h"

namespace geomx {

class Coordinator {
 public:
  struct Reply {
    NodeId to = 0;
    std::vector<double> values;
  };

  virtual ~Coordinator() = default;

  // Whose it is, for errors; empty where what reporters say decides whom it answers.
  virtual std::string whose() const { return {}; }

  // `from` reports. A report leaves behind everything that its sender queued before, so `now` is also
  // when the sender's values had reached this node, if this is where they went.
  virtual std::vector<Reply> OnReport(NodeId from, std::span<const double> values, Time now) = 0;

  // A member is lost and takes part no more, or has come back and remembers nothing.
  virtual std::vector<Reply> OnMember(NodeId member, bool back, Time now) {
    (void)member, (void)back, (void)now;
    return {};
  }

  virtual std::vector<Reply> OnTimeout(Time now) {
    (void)now;
    return {};
  }
  virtual Time NextTimeout() const { return kNever; }
};

}  // namespace geomx
