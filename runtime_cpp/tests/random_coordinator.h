// A coordinator of an overlay for tests, whose orders and plans are drawn.
#pragma once

#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "core/overlay.h"
#include "tests/check.h"
#include "tests/cluster.h"

namespace geomx::check {

class RandomCoordinator : public Coordinator {
 public:
  std::vector<Reply> OnReport(NodeId from, std::span<const double> values, Time) final {
    const auto report = OverlayReport::Unpack(values);
    CHECK(report.has_value());
    return report ? Answer(from, *report) : std::vector<Reply>{};
  }

  void Exchange(Archive& archive) override {
    std::ostringstream text;
    text << random_;
    std::string random = text.str();
    archive(random);
    std::istringstream(random) >> random_;
  }

 protected:
  virtual std::vector<Reply> Answer(NodeId from, const OverlayReport& report) = 0;

  Random random_{7};
};

}  // namespace geomx::check
