#include "core/node_state.h"

#include <algorithm>
#include <stdexcept>

namespace geomx {
namespace {

NodeConfig Checked(NodeConfig config) {
  if (config.frame_bytes == 0) throw std::invalid_argument("frame_bytes must be positive");
  std::sort(config.children.begin(), config.children.end());
  return config;
}

}  // namespace

NodeState::NodeState(NodeConfig its_config)
    : config(Checked(std::move(its_config))), peers(config), device(config.device) {}

}  // namespace geomx
