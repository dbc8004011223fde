// The central part of a policy that needs one: members report numbers, it answers with numbers.
//
// It runs on a node that all its members are connected to anyway (a local server, or the scheduler)
// and uses that node's clock only, so clocks need not agree. Reports and replies are control
// messages of the protocol: both modes have them, with their latency.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/archive.h"
#include "core/types.h"

namespace geomx {

class Coordinator {
 public:
  struct Reply {
    NodeId to = 0;
    std::vector<double> values;
  };

  virtual ~Coordinator() = default;

  // The plugin and hook that it came from, for errors; empty if reporters' numbers decide whom it
  // answers.
  virtual std::string whose() const { return {}; }

  // Handles a report of `from`. A report leaves after everything that its sender has queued before,
  // so `now` is also the time by which the sender's values for this node had arrived.
  virtual std::vector<Reply> OnReport(NodeId from, std::span<const double> values, Time now) = 0;

  // A member is lost, or (`back`) a new process of it takes part, without the state of the old one.
  virtual std::vector<Reply> OnMember(NodeId member, bool back, Time now) {
    (void)member, (void)back, (void)now;
    return {};
  }

  virtual std::vector<Reply> OnTimeout(Time now) {
    (void)now;
    return {};
  }
  virtual Time NextTimeout() const { return kNever; }

  // Writes or reads the state. A coordinator that does not say is taken to have some that it cannot
  // write.
  virtual void Exchange(Archive& archive) {
    (void)archive;
    Archive::CannotTell("a coordinator");
  }
};

}  // namespace geomx
