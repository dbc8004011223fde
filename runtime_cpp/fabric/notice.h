// What a simulation tells its applications.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/types.h"

namespace geomx {

struct Notice {
  enum class Kind : std::uint8_t {
    kForward,  // a trainer's forward pass has ended
    kReady,    // a trainer has the values that it waited for
    kReply,    // a coordinator's answer: `values`
    kValue,    // a tensor's new value has arrived: `key`, `round` (see ReportValues)
    kRefused,  // an instruction, `text`, was refused: `reason`
    kLost,       // a node or a connection was lost, `text`, which ends the run: `reason`
    kGone,       // training continues without a member, `node`, whose name is `text`: `reason`
    kTakesPart,  // `node` contributes again, for the first time
    kEnds,       // a worker, `node`, can no longer take part: `reason`
    kPartial,    // `node`, a server, closed `round` of `key` without `values`; see `partial`
    kTransferred,  // the last byte of a transfer, `key`, has arrived
    kMoved,      // the standby of `node`, whose name is `text`, has taken its place: `reason`
    kNonFinite,  // a push holds values that are NaN or infinite: `key`, `round`, `text`
    kReleased,   // all workers have come to barrier `round`
    kStopped,    // the last worker that took part has left: others can no longer return
    kState,      // a part of an optimizer's state that a worker has asked for: `text`
  };
  NodeId node = 0;
  Kind kind = Kind::kForward;
  Key key = 0;
  Round round = 0;
  struct {
    std::uint32_t shard = 0, workers = 0;  // the workers that the sum includes
    Round above = 0;                       // the global round that it is sent as; 0: none
    std::vector<std::pair<NodeId, Round>> late = {};  // see Event::late
    std::uint32_t dropped = 0;  // see Event::dropped
  } partial = {};
  std::string text = {}, reason = {};
  std::vector<double> values = {};
};

}  // namespace geomx
