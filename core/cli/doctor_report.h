// turbo doctor --report: one file that tells how the hip tier does on a machine, for somebody who has not got that machine.
//
// Whatever may crash or hang on a faulty driver runs in a child of this program, and what became of it is part of the
// report. Names of users, hosts and home folders are left out.
#pragma once

#include "cli/arguments.h"
#include "cli/machine_facts.h"

namespace turbo::cli {

/// The report, complete and scrubbed. Takes a minute or two; notes on stderr say what is being done.
nlohmann::ordered_json make_doctor_report(const Arguments& arguments);

/// For people: the object's keys and values, indented.
std::string report_text(const nlohmann::ordered_json& report);

/// The command: to the file of the command line, or stdout. A file that ends in .json is JSON, as with --json.
int run_doctor_report(const Arguments& arguments);

/// What the two tiers generated, compared: {same_ids, first_difference}.
nlohmann::ordered_json compare_ids(const std::vector<int32_t>& a, const std::vector<int32_t>& b);

}  // namespace turbo::cli
