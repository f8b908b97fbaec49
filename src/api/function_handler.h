// A person's function as a handler for the hosts.
#pragma once
#include <memory>

#include "include/tealight/function.h"
#include "src/host/handler.h"
#include "src/task/lm.h"

namespace tealight {

std::unique_ptr<Handler> function_handler(std::unique_ptr<Lm> lm, const Function& f);

}  // namespace tealight
