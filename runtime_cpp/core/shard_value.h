// A shard's value on its way out of a node, as roles and overlays hand it to the sender.
#pragma once

#include <memory>

#include "core/message.h"

namespace geomx {

class DeviceValue;

struct ShardValue {
  Header header;                      // describes the value; its kind gives the direction
  const float* data = nullptr;        // null if phantom
  std::shared_ptr<const void> owner;  // keeps `data` alive and unchanged until it has left
  DeviceValue* device = nullptr;      // where `data` is; null: on the host

  bool phantom() const { return data == nullptr; }
};

}  // namespace geomx
