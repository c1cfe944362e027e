# A module as a site would write one, on nothing but Terraform itself: a node is a directory.
variable "nodes" {
  type = map(object({
    cluster    = string
    generation = number
    group      = string
    image      = string
    flavor     = string
    zone       = string
    market     = string
    user_data  = string
    boot       = number
  }))
}

variable "root" {
  type = string
}

module "node" {
  source   = "./node"
  for_each = var.nodes
  name     = each.key
  wanted   = each.value
  root     = var.root
}

output "nodes" {
  value = { for name, node in module.node : name => node.facts }
}
